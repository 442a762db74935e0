# P01: the classic fork bomb. Forks must fail with EAGAIN, and the deadline must end every part of it.
bomb() { bomb | bomb & }
bomb
while :; do :; done
