#!/usr/bin/env python3
"""Draws docs/terminal.svg from a real session.

    python3 docs/terminal.py [BELLJAR]

Runs each command in a terminal of its own (so that colours are what people see) and draws what it printed. BELLJAR is
the executable to run, `belljar` in the path unless said. Nothing is made up: what belljar prints is what is drawn, with
three changes: lines that an excerpt leaves out become one line with three dots, an exit code other than 0 is added,
and the words before belljar's own messages are coloured.
"""

import html
import os
import pathlib
import pty
import re
import shlex
import sys

COLUMNS = 96
# A command, and of its output the lines to keep (all, where nothing is said).
SESSION = [
    ("belljar run -c 'print(6 * 7)'", None),
    ("belljar run -c 'print(open(\"/etc/shadow\").read())'", None),
    ("belljar run --timeout 1s -c 'while True: pass'", None),
    ("belljar run --memory 64M -c '[bytearray(10**6) for _ in range(999)]'", None),
    ("belljar doctor", r"(user|mount|pid|network)-n|seccomp|landlock|memory-c|every control|missing|languages"),
]

FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
SIZE, ADVANCE, LEADING, MARGIN, BAR = 14, 8.43, 20, 18, 34
BACKGROUND, FRAME, TEXT, DIM, PROMPT = "#14171c", "#232830", "#d7dce2", "#7d8793", "#8bd5ca"
COLOURS = {"31": "#f0726a", "32": "#7fd17f", "33": "#e5c07b"}


def run(belljar, command):
    """What a command prints to a terminal, and its exit code."""
    words = shlex.split(command)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.environ.pop("NO_COLOR", None)
        os.execvp(belljar, words)
    printed = b""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not chunk:
            break
        printed += chunk
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return printed.decode().replace("\r\n", "\n").rstrip("\n").split("\n"), status


def excerpt(lines, keep):
    """The lines that `keep` matches, with three dots where others were."""
    if keep is None:
        return lines
    kept = []
    for line in lines:
        if re.search(keep, line):
            kept.append(line)
        elif not kept or kept[-1] != "…":
            kept.append("…")
    return kept


def coloured(line):
    """A line as pairs of text and colour, from the terminal's own colour codes."""
    pieces, colour = [], TEXT
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        code = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if code:
            colour = COLOURS.get(code[1], TEXT)
        elif part:
            label = re.match(r"(belljar|hint): ", part) if colour == TEXT and not pieces else None
            if label:
                pieces.append((label[0], PROMPT if label[1] == "belljar" else DIM))
                part = part[label.end():]
            pieces.append((part, DIM if part == "…" else colour))
    return pieces


def wrapped(pieces):
    """The same over as many lines as a terminal of that width needs."""
    lines, room = [[]], COLUMNS
    for text, colour in pieces:
        while text:
            lines[-1].append((text[:room], colour))
            room, text = room - len(text[:room]), text[room:]
            if room == 0:
                lines.append([])
                room = COLUMNS
    return [line for line in lines if line] or [[]]


def session(belljar):
    for number, (command, keep) in enumerate(SESSION):
        if number:
            yield []
        yield from wrapped([("$ ", PROMPT), (command, "#ffffff")])
        printed, status = run(belljar, command)
        for line in excerpt(printed, keep):
            yield from wrapped(coloured(line))
        if status:
            yield [(f"exit code {status}", DIM)]


def draw(lines):
    width = round(COLUMNS * ADVANCE + 2 * MARGIN)
    height = BAR + len(lines) * LEADING + MARGIN
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    yield "<title>A session with belljar</title>"
    yield f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>'
    yield f'<path d="M0 {BAR - 8}V8a8 8 0 0 1 8-8h{width - 16}a8 8 0 0 1 8 8v{BAR - 16}z" fill="{FRAME}"/>'
    for number, colour in enumerate(["#f0726a", "#e5c07b", "#7fd17f"]):
        yield f'<circle cx="{MARGIN + 18 * number}" cy="{(BAR - 8) // 2}" r="5" fill="{colour}"/>'
    yield f'<g font-family="{FONT}" font-size="{SIZE}" xml:space="preserve" style="white-space:pre">'
    for number, line in enumerate(lines):
        spans = "".join(f'<tspan fill="{colour}">{html.escape(text)}</tspan>' for text, colour in line)
        if spans:
            yield f'<text x="{MARGIN}" y="{BAR + (number + 1) * LEADING - 6}">{spans}</text>'
    yield "</g>"
    yield "</svg>"


if __name__ == "__main__":
    picture = "\n".join(draw(list(session(sys.argv[1] if len(sys.argv) > 1 else "belljar")))) + "\n"
    pathlib.Path(__file__).with_suffix(".svg").write_text(picture)
