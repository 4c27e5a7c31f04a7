"""A node that leaves while its agent is about to read it."""

from gpuscale.agent.gpu.owners import Attribution
from gpuscale.base.clock import ManualClock
from gpuscale.lab.local.agents import PresentReader
from gpuscale.lab.local.present import Present
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.world import World


def test_a_node_that_left_has_nothing_to_read() -> None:
    clock = ManualClock(0)
    world = World(find_setup("aks-mnist-jobs"), 0)
    present = Present(world, clock)
    clock.advance(600)  # three nodes by now
    present.catch_up()
    readers = {node: PresentReader(present, node) for node in world.gpus.readers}
    assert len(readers) == 3
    clock.advance(3_000)  # and one again
    left = [node for node, reader in readers.items() if not reader.read(clock.now_ms())]
    assert len(left) == 2
    for node in left:
        assert readers[node].gpus() == ()
        assert world.gpus.attribution(node) == Attribution()
