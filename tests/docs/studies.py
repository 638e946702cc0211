#!/usr/bin/env python3
"""studies.py NAME RESULTS.json: checks what docs/studies.md concludes from a study against its results, the
document of `kernbench sweep --json`.
"""
import json
import sys


class Results:
    def __init__(self, points):
        self.points = points

    def only(self, **axes):
        """The points with these values; an axis is named by its last part."""
        def fits(point):
            values = {name.split(".")[-1]: value for name, value in point["axes"].items()}
            return all(values.get(name) == value for name, value in axes.items())
        return Results([point for point in self.points if fits(point)])

    def figure(self, name):
        assert len(self.points) == 1, f"{len(self.points)} points"
        return self.points[0]["figures"][name]

    def figures(self, name):
        return [point["figures"][name] for point in self.points]


def ucie_bandwidth(r):
    for size in (65536, 1048576):
        reduce = r.only(bench="ccl_allreduce", max_bytes=size)
        at = [reduce.only(bw_gbs=bw).figure("metrics.busbw_gbs") for bw in (128, 256, 512, 1024)]
        assert at[0] < 0.9 * at[1] and at[1] == at[2] == at[3]
    for rows, enough in ((16, 128), (64, 256)):
        gemm = r.only(bench="tp_mlp", batch=rows)
        best = max(gemm.figures("metrics.gemm_tflops"))
        assert gemm.only(bw_gbs=enough).figure("metrics.gemm_tflops") >= 0.95 * best
        assert gemm.only(bw_gbs=enough / 2).figure("metrics.gemm_tflops") < 0.85 * best


def hbm_and_matrix_rate(r):
    def us(batch, bw, cycle):
        return r.only(batch=batch, xbar_to_hbm_bw_gbs=bw, cycle_ns=cycle).figure("layer_us")
    for batch in (1, 16):
        assert us(batch, 128, 1) > 1.75 * us(batch, 512, 1)
        for bw in (128, 256, 512, 1024):
            assert us(batch, bw, 2) < 1.15 * us(batch, bw, 0.5)
            assert us(batch, 1024, 1) > 0.99 * us(batch, 512, 1)
    for cycle in (0.5, 1, 2):
        assert abs(us(64, 1024, cycle) / us(64, 256, cycle) - 1) < 0.01
    assert us(64, 256, 2) > 1.5 * us(64, 256, 1)


def sips_and_topology(r):
    def busbw(size, topology, count):
        return r.only(max_bytes=size, topology=topology, count=count).figure("metrics.busbw_gbs")
    for size in (4096, 65536, 1048576):
        for count in (4, 9, 16):
            torus = busbw(size, "torus_2d", count)
            assert torus > busbw(size, "ring_1d", count)
            assert torus > busbw(size, "mesh_2d_no_wrap", count)
    assert busbw(1048576, "torus_2d", 16) > 1.9 * busbw(1048576, "ring_1d", 16)
    assert busbw(1048576, "ring_1d", 4) > 2.9 * busbw(1048576, "ring_1d", 16)
    assert busbw(1048576, "torus_2d", 4) < 1.8 * busbw(1048576, "torus_2d", 16)


STUDIES = {"ucie-bandwidth": ucie_bandwidth, "hbm-and-matrix-rate": hbm_and_matrix_rate,
           "sips-and-topology": sips_and_topology}


def main():
    with open(sys.argv[2], encoding="utf-8") as file:
        points = json.load(file)["points"]
    assert points and all(point["ok"] for point in points)
    STUDIES[sys.argv[1]](Results(points))


main()
