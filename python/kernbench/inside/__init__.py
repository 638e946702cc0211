"""Views of an engine's inside, under the names of the Python original.

Tests of the original's users look at these. Each shows what the engine has at the moment; none
keeps or makes up anything:

- ``EnvironmentView``: ``engine._env.now``
- ``MemoryView``: ``engine.memory_store``
- ``ComponentsView``: ``engine._components["sip0.cube5.pe0.pe_ipcq"].queue_pairs``
- ``ResultsView``: ``engine._results``
- ``AllocatorsView``: ``ctx._allocators``

New programs do not need them.
"""
