#!/usr/bin/env python3
"""Draws the medians of a run as bars on a logarithmic scale.

    python3 bench/chart.py RESULTS.json > CHART.svg
"""

import html
import json
import math
import sys

SHOWN = ["docker", "sandlock", "bubblewrap", "bare-site", "bare", "exec", "cold", "empty", "warm", "bare-numpy", "numpy",
         "bare-node", "node", "bare-bash", "bash"]
FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', 'Liberation Sans', sans-serif"
WIDTH, LEFT, RIGHT, TOP, ROW, GAP = 860, 230, 80, 64, 26, 12
BACKGROUND, GRID, TEXT, DIM, OURS, THEIRS = "#14171c", "#2b313a", "#d7dce2", "#7d8793", "#8bd5ca", "#5b6673"
# A new group of bars begins with each of these.
GROUPS = ("bare-numpy", "bare-node", "bare-bash")


def draw(results):
    by_id = {row["id"]: row for row in results["rows"]}
    rows = [by_id[id] for id in SHOWN if id in by_id]
    low = 10 ** math.floor(math.log10(min(row["p50_ms"] for row in rows)))
    high = 10 ** math.ceil(math.log10(max(row["p50_ms"] for row in rows)))
    at = lambda ms: LEFT + (WIDTH - LEFT - RIGHT) * math.log(ms / low) / math.log(high / low)
    height = TOP + len(rows) * ROW + sum(row["id"] in GROUPS for row in rows) * GAP + 44
    return "\n".join([*frame(results, height), *grid(low, high, at, height), *bars(rows, at), "</svg>", ""])


def frame(results, height):
    machine = results["machine"]
    told = f"{machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}; one at a time, median"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" ' \
          f'font-family="{FONT}" font-size="13">'
    yield "<title>How long a run takes: belljar and its neighbours</title>"
    yield f'<rect width="{WIDTH}" height="{height}" rx="8" fill="{BACKGROUND}"/>'
    yield f'<text x="18" y="28" fill="{TEXT}" font-size="15" font-weight="600">From request to result, in milliseconds</text>'
    yield f'<text x="18" y="47" fill="{DIM}" font-size="12">{html.escape(told)}; logarithmic</text>'


def grid(low, high, at, height):
    ms = low
    while ms <= high * 1.001:
        x = f"{at(ms):.1f}"
        yield f'<path d="M{x} {TOP - 4}V{height - 32}" stroke="{GRID}"/>'
        yield f'<text x="{x}" y="{height - 14}" fill="{DIM}" text-anchor="middle">{ms:g}</text>'
        ms *= 10


def bars(rows, at):
    y = TOP
    for row in rows:
        y += GAP if row["id"] in GROUPS else 0
        ours = row["name"].startswith("belljar")
        x = at(row["p50_ms"])
        yield f'<text x="{LEFT - 12}" y="{y + 15}" text-anchor="end" fill="{TEXT if ours else DIM}">' \
              f'{html.escape(row["name"])}</text>'
        yield f'<rect x="{LEFT}" y="{y + 2}" width="{max(x - LEFT, 2):.1f}" height="{ROW - 8}" rx="3" ' \
              f'fill="{OURS if ours else THEIRS}"/>'
        yield f'<text x="{max(x, LEFT + 2) + 8:.1f}" y="{y + 15}" fill="{TEXT}">{shown(row["p50_ms"])}</text>'
        y += ROW


def shown(ms):
    """Three digits that matter."""
    return f"{ms:.{max(0, 2 - math.floor(math.log10(ms)))}f}"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        sys.stdout.write(draw(json.load(file)))
