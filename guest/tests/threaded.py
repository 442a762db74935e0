"""Imported by the zygote of the tests: has a thread of its own."""

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
