"""machines.py: random machine files: valid ones, odd ones, and malformed ones."""

PATTERNS = ("ring_1d", "torus_2d", "mesh_2d", "mesh_2d_no_wrap")
CORNERS = ("NW", "NE", "SW", "SE")


def random_machine(rng):
    """A valid machine: a few PEs in any shape, with some figures far from the usual ones."""
    lines = [f"name: {rng.choice(('m', 'odd-one', 'two words', 'x1'))}"]
    lines += random_sips(rng)
    lines.append(f"sip: {{ cube_mesh: {{ w: {rng.randint(1, 3)}, h: {rng.randint(1, 3)} }}"
                 + (f", ucie: {{ bw_gbs: {random_figure(rng)} }}" if rng.random() < 0.3 else "")
                 + " }")
    if rng.random() < 0.3:
        lines.append(f"fabric: {{ packet_bytes: {rng.choice((16, 64, 100, 256, 1000))},"
                     f" vcs: {rng.randint(1, 4)},"
                     f" ports: {rng.choice(('serial', 'parallel'))} }}")
    lines.append("cube:")
    lines += random_cube(rng)
    return "\n".join(lines) + "\n"


def random_sips(rng):
    pattern = rng.choice(PATTERNS)
    if pattern == "ring_1d":
        sips = [f"count: {rng.randint(1, 7)}"]
    else:
        sips = [f"w: {rng.randint(1, 3)}", f"h: {rng.randint(1, 3)}"]
    sips.append(f"topology: {pattern}")
    if rng.random() < 0.5:
        sips.append("link: { bw_gbs: 100, length_mm: 50, overhead_ns: 20 }")
    return ["system:", "  sips:"] + ["    " + line for line in sips]


def random_cube(rng):
    lines = [f"noc: {{ w: {rng.randint(1, 4)}, h: {rng.randint(1, 4)} }}"]
    if rng.random() < 0.3:
        lines.append(f"pe_layout: {{ pe_per_router: {rng.randint(1, 2)} }}")
    else:
        corners = rng.sample(CORNERS, rng.randint(1, 4))
        lines.append(f"pe_layout: {{ pe_per_corner: {rng.randint(1, 3)},"
                     f" corners: [{', '.join(corners)}] }}")
    if rng.random() < 0.3:
        lines.append(f"pe_gemm: {{ rows: {rng.choice((1, 3, 8, 64))},"
                     f" columns: {rng.choice((1, 5, 16, 64))} }}")
    if rng.random() < 0.3:
        lines.append(f"pe_math: {{ lanes: {rng.choice((1, 7, 64))} }}")
    if rng.random() < 0.3:
        lines.append("pe_tcm: { capacity_mib: 2, reserved_mib: 1 }")
    if rng.random() < 0.3:
        lines.append(f"pe_to_noc_bw_gbs: {random_figure(rng)}")
    return ["  " + line for line in lines]


def random_figure(rng):
    return rng.choice(("0.5", "1", "3.7", "64.0", "1024", "333.333"))


def malform(rng, text):
    """The text with something broken."""
    data = bytearray(text.encode())
    how = rng.randrange(6)
    if how == 0:
        return bytes(data[:rng.randrange(len(data) + 1)])
    if how == 1:
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif how == 2:
        at = rng.randrange(len(data))
        data[at:at] = rng.choice((b"\t", b"&a ", b"*a", b"{", b"]", b"'", b'"', b"\x00", b"- ",
                                  b"\xff\xfe", b"---\n", b"<<: ", b": ", b"|\n"))
    elif how == 3:
        lines = data.split(b"\n")
        lines.insert(rng.randrange(len(lines)), rng.choice(lines))
        data = bytearray(b"\n".join(lines))
    elif how == 4:
        lines = data.split(b"\n")
        del lines[rng.randrange(len(lines))]
        data = bytearray(b"\n".join(lines))
    else:
        digits = [i for i, c in enumerate(data) if chr(c).isdigit()]
        if digits:
            at = rng.choice(digits)
            data[at:at + 1] = rng.choice((b"0", b"-1", b"1e9", b"99999999999999999999", b"nan",
                                          b"1.5", b"true", b"''", b"0x1", b"~"))
    return bytes(data)
