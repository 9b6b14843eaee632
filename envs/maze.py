"""The mazes: layouts by name, and where their cells lie.

Rows run along x, columns along y; R is where an episode starts, G where a goal may lie, # a wall, . free floor.
Layouts as in JaxGCRL and scaling-crl (Apache-2.0); where the two differ (big_eval), as in scaling-crl.
"""

import numpy as np

LAYOUTS = {
    "u": "#####/#RGG#/###G#/#GGG#/#####",
    "u_eval": "#####/#R..#/###.#/#GGG#/#####",
    "u2": "######/#RGGG#/####G#/#GGGG#/######",
    "u2_eval": "######/#R...#/####.#/#GGGG#/######",
    "u3": "#######/#RGGGG#/#####G#/#GGGGG#/#######",
    "u3_eval": "#######/#R....#/#####.#/#GGGGG#/#######",
    "u4": "#####/#GGG#/#R#G#/###G#/#G#G#/#GGG#/#####",
    "u4_eval": "#####/#...#/#R#.#/###.#/#G#.#/#GGG#/#####",
    "u5": "########/#GGGGGG#/#R####G#/######G#/#G####G#/#GGGGGG#/########",
    "u5_eval": "########/#......#/#R####.#/######.#/#G####G#/#GGGGGG#/########",
    "u6": "#######/#GGGGG#/#R###G#/#####G#/#G###G#/#GGGGG#/#######",
    "u6_eval": "#######/#.....#/#R###.#/#####.#/#G###G#/#GGGGG#/#######",
    "u7": "######/#GGGG#/#R##G#/####G#/#G##G#/#GGGG#/######",
    "u7_eval": "######/#....#/#R##.#/####.#/#G##G#/#GGGG#/######",
    "big": "########/#RG##GG#/#GG#GGG#/##GGG###/#GG#GGG#/#G#GG#G#/#GGG#GG#/########",
    "big_eval": "########/#R.##GG#/#..#..G#/##...###/#..#...#/#.#G.#G#/#.GG#GG#/########",
    "hardest": (
        "############/#RGGG#GGGGG#/#G##G#G#G#G#/#GGGGGG#GGG#/#G####G###G#/"
        "#GG#G#GGGGG#/##G#G#G#G###/#GG#GGG#GGG#/############"
    ),
}


def cells(layout: str, marks: str, size: float) -> np.ndarray:
    """Centres (m) of the cells with one of `marks`, (n, 2), of a layout whose cells are `size` m wide."""
    rows = LAYOUTS[layout].split("/")
    found = [(x, y) for x, row in enumerate(rows) for y, mark in enumerate(row) if mark in marks]
    return size * np.array(found, np.float32)


def evaluation(layout: str) -> str:
    """The layout in which a policy trained in this one is judged: only the far goals, where there is such a one."""
    judged = f"{layout}_eval"
    return judged if judged in LAYOUTS else layout
