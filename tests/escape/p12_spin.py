# P12: blocks every signal that can be blocked and spins. Must be killed at the deadline.
import signal

signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
while True:
    pass
