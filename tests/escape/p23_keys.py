# P23: stores a secret in a key ring, or searches for one that an earlier run stored. Must be refused.
import ctypes, errno, sys

libc = ctypes.CDLL(None, use_errno=True)
ADD_KEY, REQUEST_KEY, KEYCTL = 248, 249, 250
USER_KEYRING, SEARCH = -4, 10
secret = b"planted"
attempts = {
    "add_key": (ADD_KEY, b"user", b"belljar-p23", secret, len(secret), USER_KEYRING),
    "keyctl": (KEYCTL, SEARCH, USER_KEYRING, b"user", b"belljar-p23", 0),
    "request_key": (REQUEST_KEY, b"user", b"belljar-p23", None, 0),
}
for name in sys.argv[1:]:
    result = libc.syscall(*attempts[name])
    print(f"{name}: {'ok' if result >= 0 else errno.errorcode[ctypes.get_errno()]}")
