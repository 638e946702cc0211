"""Addresses, allocators and deploy_tensor: no engine is needed."""

import pytest

from kernbench.policy.address.allocator import AddressConfig, AllocationError, PEMemAllocator
from kernbench.policy.address.phyaddr import PhysAddr
from kernbench.policy.address.pe_mmu import PeMMU
from kernbench.policy.address.va_allocator import VirtualAllocator
from kernbench.policy.placement.dp import DPPolicy, ShardSpec, resolve_dp_policy
from kernbench.runtime_api.tensor import TensorHandle, TensorShard, deploy_tensor

GIB = 1 << 30
MIB = 1 << 20


def config(**more):
    return AddressConfig(
        **{
            **dict(
                sip_count=2, cubes_per_sip=16, pes_per_cube=8, hbm_bytes_per_cube=48 * GIB,
                hbm_slices_per_cube=8, tcm_bytes_per_pe=16 * MIB,
                tcm_scheduler_reserved_bytes=4 * MIB, sram_bytes_per_cube=32 * MIB,
            ),
            **more,
        }
    )


def allocator(sip=0, cube=0, pe=0, **more):
    return PEMemAllocator(rack_id=0, sip_id=sip, cube_id=cube, pe_id=pe, cfg=config(**more))


class TestAddresses:
    def test_encode_and_decode(self):
        for pa in (
            PhysAddr.pe_tcm_addr(rack_id=0, sip_id=1, cube_id=5, pe_id=3, tcm_offset=0x1000),
            allocator(1, 15, 7).alloc_hbm(4096),
            allocator(1, 15, 7).alloc_tcm(4096),
        ):
            value = pa.encode()
            assert type(value) is int and 0 < value < 1 << 51
            assert PhysAddr.decode(value) == pa
            assert PhysAddr.decode(value).encode() == value

    def test_fields_of_the_number(self):
        value = PhysAddr.pe_tcm_addr(0, 1, 5, 3, 0x1000).encode()
        assert value >> 47 == 0
        assert (value >> 43) & 15 == 1
        assert (value >> 38) & 31 == 5
        assert (value >> 37) & 1 == 0  # the window of PE resources
        hbm = allocator(1, 5, 3).alloc_hbm(64).encode()
        assert ((hbm >> 43) & 15, (hbm >> 38) & 31, (hbm >> 37) & 1) == (1, 5, 1)

    def test_constructors_are_there(self):
        for name in ("hbm_addr", "pe_hbm_addr", "pe_tcm_addr", "cube_sram_addr"):
            assert callable(getattr(PhysAddr, name))

    @pytest.mark.parametrize("value", [1 << 51, -1])
    def test_out_of_range(self, value):
        with pytest.raises(ValueError):
            PhysAddr.decode(value)

    def test_a_field_out_of_range(self):
        with pytest.raises(ValueError):
            PhysAddr.pe_tcm_addr(0, 16, 0, 0, 0)
        with pytest.raises(ValueError):
            PhysAddr.pe_tcm_addr(0, 0, 32, 0, 0)

    def test_its_text_shows_its_meaning(self):
        assert "sip1.cube0.pe3" in str(PhysAddr.pe_tcm_addr(0, 1, 0, 3, 0x1234))


class TestAllocators:
    def test_no_overlap(self):
        a = allocator()
        spans = []
        for size in (4096, 100, 8192, 1, 64 * 1024):
            pa = a.alloc_hbm(size).encode()
            spans.append((pa, pa + size))
        spans.sort()
        assert all(e <= b for (_, e), (b, _) in zip(spans, spans[1:]))

    def test_pes_have_slices_of_their_own(self):
        first = allocator(pe=0).alloc_hbm(64).encode()
        second = allocator(pe=1).alloc_hbm(64).encode()
        assert second - first == 6 * GIB

    def test_freed_space_is_used_again(self):
        a = allocator()
        half = 4 * GIB
        pa = a.alloc_hbm(half)
        with pytest.raises(AllocationError):
            a.alloc_hbm(half)
        a.free_hbm(pa, half)
        assert a.alloc_hbm(half) == pa

    def test_exhaustion_of_hbm(self):
        a = allocator()
        a.alloc_hbm(6 * GIB)
        with pytest.raises(AllocationError):
            a.alloc_hbm(1)

    def test_exhaustion_of_tcm_leaves_the_schedulers_part(self):
        a = allocator()
        a.alloc_tcm(12 * MIB)
        with pytest.raises(AllocationError):
            a.alloc_tcm(64)

    def test_too_much_at_once_says_how_much(self):
        with pytest.raises(AllocationError, match="7516192768"):
            allocator().alloc_hbm(7 * GIB)

    def test_virtual(self):
        va = VirtualAllocator(va_base=0x1_0000_0000, va_size=1 << 30, page_size=4096)
        first, second = va.alloc(100), va.alloc(5000)
        assert first == 0x1_0000_0000 and second == first + 4096

    def test_the_mmu_is_there(self):
        assert PeMMU is not None


class TestDeploy:
    def deploy(self, placement, allocators, **more):
        return deploy_tensor(
            **{
                **dict(name="t", shape=(16, 64), dtype="fp16", placement=placement,
                       allocators=allocators),
                **more,
            }
        )

    def test_shards_in_the_order_of_the_placement(self):
        placement = resolve_dp_policy(
            DPPolicy(cube="row_wise", pe="column_wise"), shape=(16, 64), itemsize=2, num_pe=8,
            num_cubes=2, target_sip=0,
        )
        allocators = {(0, c, p): allocator(0, c, p) for c in range(2) for p in range(8)}
        handle = self.deploy(placement, allocators)
        assert isinstance(handle, TensorHandle)
        assert all(isinstance(s, TensorShard) for s in handle.shards)
        assert [(s.sip, s.cube, s.pe, s.offset_bytes, s.nbytes) for s in handle.shards] == [
            (s.sip, s.cube, s.pe, s.offset_bytes, s.nbytes) for s in placement
        ]
        assert len({s.pa for s in handle.shards}) == 16
        for s in handle.shards:
            assert (PhysAddr.decode(s.pa).encode()) == s.pa

    def test_backwards(self):
        placement = [ShardSpec(0, 0, p, p * 64, 64) for p in (3, 1, 2)]
        allocators = {(0, 0, p): allocator(pe=p) for p in range(8)}
        handle = self.deploy(placement, allocators, shape=(1, 96))
        assert [s.pe for s in handle.shards] == [3, 1, 2]

    def test_with_virtual_addresses(self):
        placement = [ShardSpec(1, 0, 0, 0, 2048)]
        va = VirtualAllocator(va_base=0x1_0000_0000, va_size=1 << 30, page_size=4096)
        handle = self.deploy(placement, {(1, 0, 0): allocator(sip=1)}, va_allocator=va)
        assert handle.va_base == 0x1_0000_0000
        other = self.deploy(placement, {(1, 0, 0): allocator(sip=1)}, va_allocator=va)
        assert other.va_base >= handle.va_base + 2048

    def test_in_tcm(self):
        a = allocator(pe=2)
        placement = [ShardSpec(0, 0, 2, 0, 2048)]
        handle = self.deploy(placement, {(0, 0, 2): a}, mem_kind="tcm")
        assert (handle.shards[0].pa >> 37) & 1 == 0
        assert (self.deploy(placement, {(0, 0, 2): a}, mem_kind="hbm").shards[0].pa >> 37) & 1 == 1

    def test_an_allocator_that_is_missing(self):
        with pytest.raises((KeyError, ValueError)):
            self.deploy([ShardSpec(0, 0, 5, 0, 2048)], {(0, 0, 0): allocator()})

    def test_two_tensors_do_not_overlap(self):
        a = {(0, 0, 0): allocator()}
        placement = [ShardSpec(0, 0, 0, 0, 2048)]
        first = self.deploy(placement, a).shards[0].pa
        second = self.deploy(placement, a).shards[0].pa
        assert abs(first - second) >= 2048
