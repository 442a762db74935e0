# P13: ignores every signal that can be ignored and sleeps. Must be killed at the deadline.
trap '' HUP INT QUIT TERM XCPU USR1 USR2 ALRM
sleep 100000
