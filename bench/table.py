"""From what the driver measured to rows, and from rows to lines of text."""

MIB = 1 << 20


def digest(found, measured):
    names = {contender["wish"]["id"]: contender["name"] for contender in found}
    bare = percentile(measured["latency"]["bare"]["micros"], 50)
    rows = []
    for contender in found:
        id, name = contender["wish"]["id"], contender["name"]
        taken = measured["latency"][id]
        row = {"id": id, "name": name, "runs": len(taken["micros"]), "failed": taken["failed"], **both(taken["micros"])}
        row["against_bare"] = round(percentile(taken["micros"], 50) / bare, 3)
        if contender["origin"]:
            row["origins"] = taken["origins"]
            row["as_meant"] = round(taken["origins"].get(contender["origin"], 0) / row["runs"], 3)
        rows.append(row)
    sustained = [
        {
            "id": load["id"], "name": names[load["id"]], "level": load["level"], "runs": len(load["micros"]),
            "failed": load["failed"],
            "per_second": round(len(load["micros"]) / load["seconds"], 1), **both(load["micros"]),
            "cpu_ms": cpu_ms(load, measured["cpu_of"]),
        }
        for load in measured["load"]
    ]
    return {"rows": rows, "sustained": sustained, "sessions": sessions(measured["sessions"]),
            "output": measured["output"], "cpu_of": measured["cpu_of"]}


def cpu_ms(load, cpu_of):
    # What a daemon does for its client is not in the client's group.
    if load["id"] == "docker" and cpu_of == "group":
        return None
    return round(load["cpu_micros"] / 1000 / len(load["micros"]), 3)


def sessions(measured):
    idle = []
    for some in measured["idle"]:
        each = lambda size: None if size is None else round(size / some["sessions"] / MIB, 3)
        parts = [some["processes"], some["kernel"]]
        idle.append({
            "sessions": some["sessions"],
            "processes_mib": each(parts[0]),
            "kernel_mib": each(parts[1]),
            "each_mib": None if None in parts else each(sum(parts)),
            "all_mib": None if None in parts else round(sum(parts) / MIB, 1),
            "charged_each_mib": each(some["charged"]),
            "open": both(some["open_micros"]),
        })
    return {
        "idle": idle,
        "cell": both(measured["cell_micros"]),
        "tool_us": round(percentile(measured["tool_micros"], 50), 1),
        "async_tool_us": round(percentile(measured["async_tool_micros"], 50), 1),
    }


def both(micros):
    return {"p50_ms": round(percentile(micros, 50) / 1000, 3), "p99_ms": round(percentile(micros, 99) / 1000, 3)}


def percentile(taken, percent):
    """The smallest that so many percent are not above."""
    taken = sorted(taken)
    return taken[max(0, -(-len(taken) * percent // 100) - 1)]


def lines(results):
    machine = results["machine"]
    yield ""
    yield (f"{machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}, "
           f"node {machine['node']}, {'root' if machine['root'] else 'not root'}")
    yield f"load before: {machine['load_before']}" + (
        " - OTHERS ARE AT WORK: compare rows of this run only" if machine["load_before"] > 0.5 else "")
    yield ""
    yield f"{'one at a time':34} {'p50 ms':>9} {'p99 ms':>9} {'x bare':>8} {'CPU ms':>8} {'as meant':>9}"
    cpu = {row["id"]: row["cpu_ms"] for row in results["sustained"] if row["level"] == 1}
    for row in results["rows"]:
        meant = f"{row['as_meant']:9.0%}" if "as_meant" in row else " " * 9
        yield (f"{row['name']:34} {row['p50_ms']:9.2f} {row['p99_ms']:9.2f} {row['against_bare']:8.3f} "
               f"{number(cpu.get(row['id']), 8, 2)} {meant}{failed(row)}")
    for missing in results["missing"]:
        yield f"NOT MEASURED {missing['name']}: {missing['why']}"
    yield ""
    yield f"{'sustained':34} {'at once':>8} {'runs/s':>9} {'p50 ms':>9} {'p99 ms':>9} {'CPU ms':>8}"
    for row in sorted(results["sustained"], key=lambda row: [other["id"] for other in results["rows"]].index(row["id"])):
        yield (f"{row['name']:34} {row['level']:8} {row['per_second']:9.1f} {row['p50_ms']:9.2f} {row['p99_ms']:9.2f} "
               f"{number(row['cpu_ms'], 8, 2)}{failed(row)}")
    yield ""
    yield from session_lines(results["sessions"])
    output = results["output"]
    grown = "unknown" if output["grown"] is None else f"{output['grown'] / MIB:.1f} MiB"
    yield f"engine's memory while a guest prints {output['gib']} GiB: grows by {grown} ({output['seconds']:.1f} s)"
    yield ""
    yield f"{'bars':58} {'measured':>12} {'bar':>10} {'goal':>10}  verdict"
    for bar in results["bars"]:
        yield f"{bar['what']:58} {bar['shown']:>12} {bar['bar_shown']:>10} {bar['goal_shown']:>10}  {bar['verdict']}"


def session_lines(sessions):
    for idle in sessions["idle"]:
        yield (f"{idle['sessions']} idle sessions: {number(idle['each_mib'], 0, 2)} MiB each (processes "
               f"{number(idle['processes_mib'], 0, 2)}, kernel {number(idle['kernel_mib'], 0, 2)}), "
               f"{number(idle['all_mib'], 0, 0)} MiB in all; charged to each group "
               f"{number(idle['charged_each_mib'], 0, 2)} MiB; opened in p50 {idle['open']['p50_ms']:.2f} ms")
    cell = sessions["cell"]
    yield f"a cell with 1+1 in a session: p50 {cell['p50_ms']:.3f} ms, p99 {cell['p99_ms']:.3f} ms"
    yield f"a call of a host tool: {sessions['tool_us']:.0f} us by function, {sessions['async_tool_us']:.0f} us by future"


def failed(row):
    return f"  {row['failed']} RUNS FAILED" if row["failed"] else ""


def number(value, width, digits):
    return f"{'-':>{width}}" if value is None else f"{value:{width}.{digits}f}"
