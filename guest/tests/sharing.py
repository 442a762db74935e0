"""Imported by the zygote of the tests: makes memory that every fork would share."""

import mmap

memory = mmap.mmap(-1, 4096)
