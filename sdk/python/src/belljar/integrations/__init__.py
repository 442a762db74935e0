"""Belljar within the frameworks of others. Each module needs the one that it is named after; nothing else does."""

from __future__ import annotations


def missing(extra: str) -> ImportError:
    """Says what to install."""
    return ImportError(f'this needs a package that is not installed: pip install "belljar[{extra}]"')
