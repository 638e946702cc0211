"""DPPolicy, ShardSpec, resolve_dp_policy and the placements of one level: no engine is needed."""

import dataclasses

import pytest

from kernbench.policy.placement.dp import (
    DPPolicy,
    ShardSpec,
    column_wise,
    replicate,
    resolve_dp_policy,
    row_wise,
    tiled_column_major,
    tiled_row_major,
)

LEVELS = ("replicate", "column_wise", "row_wise")


class TestTypes:
    def test_defaults(self):
        p = DPPolicy()
        assert (p.cube, p.pe, p.num_pes, p.num_cubes) == ("replicate", "replicate", None, None)

    def test_equal_and_hashable(self):
        assert DPPolicy(cube="row_wise") == DPPolicy(cube="row_wise") != DPPolicy()
        assert len({DPPolicy(), DPPolicy(), DPPolicy(num_pes=1)}) == 2
        assert ShardSpec(0, 1, 2, 3, 4) == ShardSpec(sip=0, cube=1, pe=2, offset_bytes=3, nbytes=4)
        hash(ShardSpec(0, 1, 2, 3, 4))

    def test_frozen(self):
        with pytest.raises(AttributeError):
            DPPolicy().cube = "row_wise"
        with pytest.raises(AttributeError):
            ShardSpec(0, 0, 0, 0, 0).sip = 1

    def test_dataclass_tools_work(self):
        assert dataclasses.replace(DPPolicy(num_pes=1), cube="row_wise") == DPPolicy(
            cube="row_wise", num_pes=1
        )

    @pytest.mark.parametrize("word", ["sip", "num_sips", "nonsense"])
    def test_unknown_keywords_of_a_policy(self, word):
        with pytest.raises(TypeError):
            DPPolicy(**{word: 1})

    def test_unknown_keywords_of_a_shard(self):
        with pytest.raises(TypeError):
            ShardSpec(sip=0, cube=0, pe=0, offset_bytes=0, nbytes=0, pe_index=0)

    def test_no_flat_index(self):
        for name in ("sip", "num_sips", "pe_index"):
            assert not hasattr(DPPolicy(), name)
        shard = ShardSpec(sip=0, cube=0, pe=0, offset_bytes=0, nbytes=1)
        assert not hasattr(shard, "pe_index") and not hasattr(shard, "num_sips")

    def test_num_sips_is_refused_by_name(self):
        with pytest.raises(TypeError, match="num_sips"):
            resolve_dp_policy(DPPolicy(), shape=(8, 8), itemsize=2, num_pe=8, target_sip=0,
                              num_sips=2)
        with pytest.raises(TypeError, match="num_sips"):
            resolve_dp_policy(DPPolicy(), shape=(8, 8), itemsize=2, num_pe=8, num_sips=2)

    def test_target_sip_is_required(self):
        with pytest.raises(TypeError):
            resolve_dp_policy(DPPolicy(), shape=(8, 8), itemsize=2, num_pe=8)

    def test_keywords_only(self):
        with pytest.raises(TypeError):
            resolve_dp_policy(DPPolicy(), (8, 8), 2, 8)


class TestResolve:
    def test_a_list_of_shards(self):
        shards = resolve_dp_policy(
            DPPolicy(pe="column_wise"), shape=(16, 64), itemsize=2, num_pe=8, target_sip=0
        )
        assert isinstance(shards, list) and all(isinstance(s, ShardSpec) for s in shards)
        assert shards == [ShardSpec(0, 0, p, p * 256, 256) for p in range(8)]

    def test_order_is_cubes_then_pes(self):
        shards = resolve_dp_policy(
            DPPolicy(cube="row_wise", pe="column_wise"), shape=(16, 64), itemsize=2, num_pe=4,
            num_cubes=16, target_sip=1,
        )
        assert [(s.cube, s.pe) for s in shards] == [(c, p) for c in range(16) for p in range(4)]
        assert {s.sip for s in shards} == {1}

    @pytest.mark.parametrize("cube", LEVELS)
    @pytest.mark.parametrize("pe", LEVELS)
    @pytest.mark.parametrize("shape", [(32, 64), (7, 13), (1, 100)])
    def test_no_byte_is_lost(self, cube, pe, shape):
        shards = resolve_dp_policy(
            DPPolicy(cube=cube, pe=pe), shape=shape, itemsize=2, num_pe=4, num_cubes=4, target_sip=0
        )
        assert len(shards) == 16
        spans = sorted({(s.offset_bytes, s.nbytes) for s in shards if s.nbytes})
        at = 0
        for offset, nbytes in spans:
            assert offset == at
            at += nbytes
        assert at == shape[0] * shape[1] * 2
        if cube != "replicate" and pe != "replicate":
            assert sum(s.nbytes for s in shards) == shape[0] * shape[1] * 2

    @pytest.mark.parametrize("cube", LEVELS)
    @pytest.mark.parametrize("pe", LEVELS)
    def test_another_sip_differs_in_sip_alone(self, cube, pe):
        def at(sip):
            return resolve_dp_policy(
                DPPolicy(cube=cube, pe=pe), shape=(32, 64), itemsize=2, num_pe=8, num_cubes=4,
                target_sip=sip,
            )

        assert [dataclasses.replace(s, sip=5) for s in at(0)] == at(5)

    def test_offsets_are_sums_of_the_levels(self):
        shards = resolve_dp_policy(
            DPPolicy(cube="row_wise", pe="column_wise"), shape=(16, 64), itemsize=2, num_pe=8,
            num_cubes=4, target_sip=0,
        )
        for s in shards:
            assert s.offset_bytes == s.cube * (4 * 64 * 2) + s.pe * (4 * 8 * 2)
            assert s.nbytes == 4 * 8 * 2

    def test_replicated_levels_have_equal_extents(self):
        shards = resolve_dp_policy(
            DPPolicy(cube="replicate", pe="row_wise"), shape=(8, 8), itemsize=2, num_pe=2,
            num_cubes=3, target_sip=0,
        )
        assert [(s.offset_bytes, s.nbytes) for s in shards] == [(0, 64), (64, 64)] * 3

    def test_num_pes_and_num_cubes_restrict(self):
        shards = resolve_dp_policy(
            DPPolicy(pe="column_wise", num_pes=2, num_cubes=3), shape=(4, 8), itemsize=2, num_pe=8,
            num_cubes=16, target_sip=0,
        )
        assert [(s.cube, s.pe) for s in shards] == [(c, p) for c in range(3) for p in range(2)]

    def test_one_cube_by_default(self):
        shards = resolve_dp_policy(DPPolicy(), shape=(4, 8), itemsize=2, num_pe=8, target_sip=0)
        assert len(shards) == 8 and {s.cube for s in shards} == {0}

    def test_one_axis_counts_as_a_row(self):
        policy = DPPolicy(pe="column_wise")
        keys = dict(itemsize=2, num_pe=8, target_sip=0)
        assert resolve_dp_policy(policy, shape=(64,), **keys) == resolve_dp_policy(
            policy, shape=(1, 64), **keys
        )

    def test_unknown_policies(self):
        with pytest.raises(ValueError, match="Unknown pe-level policy"):
            resolve_dp_policy(DPPolicy(pe="diagonal"), shape=(8, 8), itemsize=2, num_pe=8,
                              target_sip=0)
        with pytest.raises(ValueError, match="[Uu]nknown"):
            resolve_dp_policy(DPPolicy(cube="diagonal"), shape=(8, 8), itemsize=2, num_pe=8,
                              target_sip=0)


class TestOneLevel:
    def test_column_wise(self):
        shards = column_wise(shape=(1024, 512), itemsize=2, num_pe=8)
        assert [s.local_pe for s in shards] == list(range(8))
        assert {s.nbytes for s in shards} == {131072}
        assert [s.offset_bytes for s in shards] == [131072 * i for i in range(8)]

    def test_row_wise(self):
        shards = row_wise(shape=(1024, 512), itemsize=2, num_pe=8)
        assert [(s.local_pe, s.offset_bytes, s.nbytes) for s in shards] == [
            (i, 131072 * i, 131072) for i in range(8)
        ]

    def test_replicate(self):
        shards = replicate(shape=(1024, 512), itemsize=2, num_pe=8)
        assert [(s.local_pe, s.offset_bytes, s.nbytes) for s in shards] == [
            (i, 0, 1048576) for i in range(8)
        ]

    def test_parts_differ_by_at_most_one(self):
        assert [s.nbytes for s in column_wise(shape=(1, 10), itemsize=2, num_pe=4)] == [6, 6, 4, 4]
        assert [s.nbytes for s in row_wise(shape=(5, 4), itemsize=2, num_pe=8)] == [8] * 5 + [0] * 3

    def test_tiled_column_major_walks_k_first(self):
        tiles = tiled_column_major(shape=(8, 12), itemsize=2, num_pe=4, tile_m=4, tile_k=4)
        order = [(mi, ki) for mi in range(2) for ki in range(3)]
        assert [t.offset_bytes for t in tiles] == [(mi * 4 * 12 + ki * 4) * 2 for mi, ki in order]
        assert [t.local_pe for t in tiles] == [i % 4 for i in range(6)]
        assert {t.nbytes for t in tiles} == {32}

    def test_tiled_row_major_walks_m_first(self):
        tiles = tiled_row_major(shape=(8, 12), itemsize=2, num_pe=4, tile_m=4, tile_k=4)
        order = [(mi, ki) for ki in range(3) for mi in range(2)]
        assert [t.offset_bytes for t in tiles] == [(mi * 4 * 12 + ki * 4) * 2 for mi, ki in order]
        assert [t.local_pe for t in tiles] == [i % 4 for i in range(6)]
