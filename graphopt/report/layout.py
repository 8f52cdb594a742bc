"""Where the nodes of a large graph are drawn: columns by topological depth, lanes that keep chains straight.

A simplified form of the layered drawing of Sugiyama, Tagawa and Toda ("Methods for Visual Understanding of Hierarchical
System Structures", 1981): an overview needs neither minimal crossings nor bends around nodes, but thousands of nodes in a
fraction of a second.
"""

from __future__ import annotations

from collections.abc import Sequence

SWEEPS = 6
"""Passes over the columns, forwards and backwards in turn."""


def columns(readers: Sequence[Sequence[int]]) -> list[int]:
    """The length of the longest path to each node.

    Args:
        readers: For each node those that read it. Two graphs laid over each other may form a cycle, which is then cut
            before the first of its nodes.
    """
    waiting = [0] * len(readers)
    for targets in readers:
        for target in targets:
            waiting[target] += 1
    depth = [0] * len(readers)
    done = [False] * len(readers)
    ready = [node for node, count in enumerate(waiting) if count == 0]
    first_left = 0
    while len(ready) > 0 or not all(done):
        if not ready:
            while done[first_left]:
                first_left += 1
            ready.append(first_left)
        node = ready.pop()
        done[node] = True
        for target in readers[node]:
            waiting[target] -= 1
            if not done[target]:
                depth[target] = max(depth[target], depth[node] + 1)
                if waiting[target] == 0:
                    ready.append(target)
    return depth


def lanes(column: Sequence[int], readers: Sequence[Sequence[int]]) -> list[int]:
    """A lane for each node, 0 or more, no two nodes of a column in the same one.

    The longest path of all is a straight line; its branches lie around it, the longest next to it.
    """
    members: list[list[int]] = [[] for _ in range(max(column, default=-1) + 1)]
    sources: list[list[int]] = [[] for _ in column]
    for node, targets in enumerate(readers):
        members[column[node]].append(node)
        for target in targets:
            sources[target].append(node)
    height = [0] * len(column)
    for group in reversed(members):
        for node in group:
            height[node] = 1 + max((height[target] for target in readers[node]), default=0)
    spine = set[int]()
    for group in members:
        after = [node for node in group if not spine or any(source in spine for source in sources[node])]
        spine.add(max(after or group, key=lambda node: (height[node], -node)))
    lane = [0] * len(column)
    for group in members:
        group.sort(key=lambda node: (node not in spine, -height[node], node))
        for position, node in enumerate(group):
            lane[node] = position
    for sweep in range(SWEEPS):
        forwards = sweep % 2 == 0
        for group in members if forwards else reversed(members):
            _arrange(group, lane, sources if forwards else readers)
    top = min(lane, default=0)
    return [each - top for each in lane]


def _arrange(group: Sequence[int], lane: list[int], neighbours: Sequence[Sequence[int]]) -> None:
    """Put each node of a column where its neighbours are, or as near as those before it leave room; the first stays."""
    above: dict[int, int] = {}
    below: dict[int, int] = {}
    for node in group:
        near = neighbours[node] if above else ()
        wish = round(sum(lane[other] for other in near) / len(near)) if near else lane[node]
        up, down = _free(above, wish), _free(below, wish)
        lane[node] = up if up - wish <= wish - down else down
        above[lane[node]], below[lane[node]] = lane[node] + 1, lane[node] - 1


def _free(taken: dict[int, int], lane: int) -> int:
    """The first lane from ``lane`` on that is not taken; what was walked over is remembered as one jump."""
    end = lane
    while end in taken:
        end = taken[end]
    while lane != end:
        taken[lane], lane = end, taken[lane]
    return end
