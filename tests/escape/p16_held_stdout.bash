# P16: a child keeps the output open after the program has ended. The result must not wait for it.
sleep 1.5 &
echo ended
