"""Made-up weather for DeepCam: maps of 16 variables with cyclones and rivers in them, and labels.

`make_sample` draws one sample of any size from a seed and its number alone. The variables are
smooth random fields with the mean and deviation of the real ones in the tropics. Into them go
cyclones and atmospheric rivers, which are labelled, and two kinds of decoys, which are not: lows
with a cold core, and round moist patches. A single pixel of a decoy looks like one of the real
thing; the shape and the surroundings make the difference. generate.py writes the samples to files.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rampup.datasets.deepcam.files import VARIABLES

BACKGROUND, CYCLONE, RIVER = range(3)
TROPICS = 30.0
"""Degrees from the equator; the scales below are those of the points between."""
SCALES = {
    "TMQ": (34.9, 13.0),
    "U850": (-0.6, 6.9),
    "V850": (0.1, 4.4),
    "UBOT": (-2.1, 6.1),
    "VBOT": (-0.6, 4.8),
    "QREFHT": (0.0144, 0.0041),
    "PS": (101554.0, 548.0),
    "PSL": (101556.0, 547.0),
    "T200": (216.9, 2.3),
    "T500": (264.3, 3.6),
    "PRECT": (5.1e-8, 2.8e-7),
    "TS": (298.3, 3.9),
    "TREFHT": (296.9, 4.1),
    "Z1000": (135.0, 43.0),
    "Z200": (12291.0, 137.0),
    "ZBOT": (65.4, 1.1),
}
"""The mean and the deviation of each variable."""
POLEWARDS = {
    "TMQ": -28.0,
    "QREFHT": -0.012,
    "T200": 4.0,
    "T500": -28.0,
    "TS": -42.0,
    "TREFHT": -43.0,
    "Z1000": -60.0,
    "Z200": -1300.0,
    "PS": -900.0,
    "PSL": -900.0,
}
"""How much a variable changes from the tropics to the poles."""
LATENTS = ("moist", "warm", "pressure", "high", "surface", "east", "north")
MIXTURES: dict[str, dict[str, float]] = {
    "TMQ": {"moist": 1.0, "warm": 0.2},
    "U850": {"east": 1.0},
    "V850": {"north": 1.0},
    "UBOT": {"east": 0.9, "surface": 0.3},
    "VBOT": {"north": 0.9, "surface": -0.3},
    "QREFHT": {"moist": 0.6, "surface": 0.8},
    "PS": {"pressure": 1.0},
    "PSL": {"pressure": 1.0, "surface": 0.05},
    "T200": {"high": 1.0, "warm": 0.3},
    "T500": {"warm": 1.0},
    "PRECT": {"moist": 0.7, "pressure": -0.4, "north": 0.5},
    "TS": {"surface": 1.0, "warm": 0.2},
    "TREFHT": {"surface": 1.0, "warm": 0.3},
    "Z1000": {"pressure": 1.0},
    "Z200": {"high": 0.7, "warm": 0.7},
    "ZBOT": {"surface": 1.0},
}
"""What a variable is mixed from; the sum is brought to unit deviation."""
SKEW = 1.855
"""The deviation of the logarithm of PRECT: its deviation is 5.5 times its mean."""
STEEPNESS = 2.6
"""The amplitude of a wave falls with this power of its number."""
REFERENCE = 96 * 144
"""The area in pixels for which the numbers of the objects below are meant."""
CYCLONES, LOWS, RIVERS, PATCHES = 1.75, 1.4, 1.2, 1.4
"""How many there are on average on a map of that size."""
RELAXED = 1.4
"""The size of an object in labels_1, relative to labels_0."""


class Sample(NamedTuple):
    data: NDArray[np.float32]
    """(height, width, 16)"""
    labels: NDArray[np.uint8]
    """(height, width): the class of each pixel."""
    relaxed: NDArray[np.uint8]
    """The same with larger objects, as labels_1 has it."""


class Canvas:
    """A map in the making: its variables by name, its labels, and its scale."""

    def __init__(self, height: int, width: int, numbers: np.random.Generator) -> None:
        self.height, self.width, self.numbers = height, width, numbers
        area = height * width / REFERENCE
        self.crowd = area**0.5
        """How many more objects there are than on the reference map."""
        self.zoom = area**0.25
        """How much wider they are, in pixels."""
        self.latitude = 90 - 180 * (np.arange(height) + 0.5) / height
        self.fields = make_background(height, width, self.latitude, numbers)
        self.labels = np.zeros((height, width), np.uint8)
        self.relaxed = np.zeros((height, width), np.uint8)
        self.taken: list[tuple[float, float, float]] = []

    def add(
        self,
        name: str,
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        what: NDArray[np.float64],
    ) -> None:
        self.fields[name][rows[:, None], columns[None, :]] += what

    def window(self, row: float, column: float, reach: float) -> "Window":
        """Return the pixels around a point; the map is round in the direction of the columns."""
        low, high = int(row - reach), int(row + reach) + 1
        rows = np.arange(max(0, low), min(self.height, high + 1))
        reach = min(reach, self.width / 2 - 1)
        columns = np.arange(int(column - reach), int(column + reach) + 2)
        down, right = np.meshgrid(rows - row, columns - column, indexing="ij")
        return Window(rows, columns % self.width, down, right)

    def find_place(self, low: float, high: float, apart: float) -> tuple[float, float] | None:
        """Return a point between two latitudes of either hemisphere, away from all others."""
        for _ in range(20):
            degrees = self.numbers.uniform(low, high) * self.numbers.choice((-1, 1))
            row = (90 - degrees) / 180 * self.height
            column = self.numbers.uniform(0, self.width)
            if all(self.distance(row, column, each) > apart + each[2] for each in self.taken):
                self.taken.append((row, column, apart))
                return row, column
        return None

    def distance(self, row: float, column: float, other: tuple[float, float, float]) -> float:
        across = abs(column - other[1])
        return float(np.hypot(row - other[0], min(across, self.width - across)))

    def hemisphere(self, row: float) -> int:
        """Return 1 in the north and -1 in the south."""
        return 1 if row < self.height / 2 else -1


class Window(NamedTuple):
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    down: NDArray[np.float64]
    """How far each pixel lies below the point, and to its right."""
    right: NDArray[np.float64]


def make_sample(seed: int, index: int, height: int, width: int) -> Sample:
    """Draw a sample: the same for the same seed, number and size."""
    numbers = np.random.Generator(np.random.Philox([seed, index]))
    canvas = Canvas(height, width, numbers)
    counts = numbers.poisson([rate * canvas.crowd for rate in (CYCLONES, LOWS)])
    for is_warm, count in zip((True, False), counts, strict=True):
        for _ in range(count):
            add_vortex(canvas, is_warm)
    more = canvas.crowd**0.5  # a river is also longer on a larger map
    for _ in range(numbers.poisson(RIVERS * more)):
        add_river(canvas)
    for _ in range(numbers.poisson(PATCHES * canvas.crowd)):
        add_patch(canvas)
    for name in ("TMQ", "QREFHT", "PRECT"):
        np.maximum(canvas.fields[name], 0, out=canvas.fields[name])
    data = np.stack([canvas.fields[name] for name in VARIABLES], 2).astype(np.float32)
    return Sample(data, canvas.labels, canvas.relaxed)


# background ---------------------------------------------------------------------------------------


def make_background(
    height: int, width: int, latitude: NDArray[np.float64], numbers: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """Draw all variables without any object."""
    latents = {name: draw_smooth(height, width, numbers) for name in LATENTS}
    tropical = np.abs(latitude) < TROPICS
    poleward = np.clip((np.abs(latitude) - TROPICS) / (90 - TROPICS), 0, 1)[:, None] ** 0.8
    fields = {}
    for name, (mean, deviation) in SCALES.items():
        mixed = sum(share * latents[latent] for latent, share in MIXTURES[name].items())
        mixed = np.asarray(mixed) + 0.15 * draw_smooth(height, width, numbers)
        mixed /= mixed[tropical].std()
        if name == "PRECT":
            fields[name] = mean * np.exp(SKEW * mixed - SKEW**2 / 2)
        else:
            fields[name] = mean + deviation * mixed + POLEWARDS.get(name, 0.0) * poleward
    jet = 9 * np.exp(-(((np.abs(latitude) - 45) / 12) ** 2))[:, None]
    for name in ("U850", "UBOT"):
        fields[name] += jet
    return fields


def draw_smooth(height: int, width: int, numbers: np.random.Generator) -> NDArray[np.float64]:
    """Draw a field of mean 0 and deviation 1, round in both directions."""
    down = np.fft.fftfreq(height, 1 / height)[:, None]
    right = np.fft.rfftfreq(width, 1 / width)[None, :]
    waves = np.hypot(down, right * height / width)
    waves[0, 0] = 1
    noise = np.fft.rfft2(numbers.standard_normal((height, width)))
    # waves as long as the map would move its mean, which is to be that of the real variable
    spectrum = noise * waves**-STEEPNESS * (waves >= 2)
    field = np.fft.irfft2(spectrum, (height, width))
    made: NDArray[np.float64] = (field - field.mean()) / field.std()
    return made


# vortices -----------------------------------------------------------------------------------------


def add_vortex(canvas: Canvas, is_warm: bool) -> None:
    """Add a cyclone, or a low with a cold core, which differs only by the sign of the core."""
    numbers = canvas.numbers
    radius = numbers.uniform(2.6, 3.7) * canvas.zoom
    place = canvas.find_place(8, 28, 3 * radius)
    if place is None:
        return
    row, column = place
    rows, columns, down, right = canvas.window(row, column, 5 * radius)
    angle, flat = numbers.uniform(0, np.pi), numbers.uniform(0.8, 1.0)
    along = np.cos(angle) * right + np.sin(angle) * down
    across = (np.cos(angle) * down - np.sin(angle) * right) / flat
    distance = np.hypot(along, across) / radius
    strength = numbers.uniform(0.8, 1.2)
    core = np.exp(-0.5 * (distance / 0.9) ** 2)
    sign = 1.0 if is_warm else -1.0
    changes = {
        "TMQ": 25 * core,
        "QREFHT": 0.003 * core,
        "PS": -1150 * core,
        "PSL": -1150 * core,
        "Z1000": -100 * core,
        "T500": sign * 5.5 * core,
        "T200": sign * 4.0 * core,
        "Z200": sign * 60 * core,
        "PRECT": 6e-7 * core,
    }
    for name, change in changes.items():
        canvas.add(name, rows, columns, strength * change)
    # counterclockwise in the north; rows count southwards
    speed = strength * 22 * distance * np.exp(0.5 * (1 - distance**2)) * canvas.hemisphere(row)
    length = np.maximum(np.hypot(down, right), 1e-9)
    east, north = speed * down / length, speed * right / length
    for suffix, share in (("850", 1.0), ("BOT", 0.8)):
        canvas.add(f"U{suffix}", rows, columns, share * east)
        canvas.add(f"V{suffix}", rows, columns, share * north)
    if is_warm:
        label(canvas, rows, columns, distance, 1.0, CYCLONE)


def label(
    canvas: Canvas,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    distance: NDArray[np.float64],
    edge: float,
    kind: int,
) -> None:
    """Label the pixels within the edge of an object. A cyclone stays what it is where a river
    crosses it."""
    place = rows[:, None], columns[None, :]
    for labels, limit in ((canvas.labels, edge), (canvas.relaxed, edge * RELAXED)):
        part = labels[place]
        labels[place] = np.where((distance < limit) & (part != CYCLONE), kind, part)


# moist things -------------------------------------------------------------------------------------


def add_river(canvas: Canvas) -> None:
    """Add a long bent filament from the edge of the tropics polewards, with the wind along it."""
    numbers = canvas.numbers
    length = numbers.uniform(28, 46) * canvas.crowd
    half = numbers.uniform(1.5, 2.2) * canvas.zoom
    place = canvas.find_place(16, 26, 4 * half)
    if place is None:
        return
    hemisphere = canvas.hemisphere(place[0])
    heading, bend = numbers.uniform(0.2, 0.75), numbers.uniform(-0.7, 0.7)
    steps = np.linspace(0, 1, int(2 * length))
    headings = heading + bend * steps + 0.15 * np.sin(2 * np.pi * (steps * 2 + numbers.random()))
    stride = length / len(steps)
    rows = place[0] - hemisphere * np.cumsum(np.sin(headings)) * stride
    columns = place[1] + np.cumsum(np.cos(headings)) * stride
    kept = (rows > 0.08 * canvas.height) & (rows < 0.92 * canvas.height)
    rows, columns, headings, steps = (each[kept] for each in (rows, columns, headings, steps))
    distance = np.full((canvas.height, canvas.width), np.inf)
    direction = np.zeros((canvas.height, canvas.width))
    for row, column, angle in zip(rows, columns, headings, strict=True):
        near = canvas.window(row, column, 4 * half)
        found = np.hypot(near.down, near.right)
        cells = near.rows[:, None], near.columns[None, :]
        closer = found < distance[cells]
        distance[cells] = np.where(closer, found, distance[cells])
        direction[cells] = np.where(closer, angle, direction[cells])
    everywhere = np.arange(canvas.height), np.arange(canvas.width)
    profile = np.exp(-0.5 * (distance / half) ** 2)
    add_moisture(canvas, *everywhere, profile, direction, hemisphere)
    label(canvas, *everywhere, distance, 1.1 * half, RIVER)


def add_patch(canvas: Canvas) -> None:
    """Add a round patch with the moisture and the wind of a river."""
    numbers = canvas.numbers
    radius = numbers.uniform(3.0, 5.0) * canvas.zoom
    place = canvas.find_place(18, 50, 1.5 * radius)
    if place is None:
        return
    rows, columns, down, right = canvas.window(*place, 4 * radius)
    profile = np.exp(-0.5 * (np.hypot(down, right) / (0.8 * radius)) ** 4)
    heading = numbers.uniform(0.2, 0.75) + numbers.uniform(-0.7, 0.7)
    add_moisture(
        canvas, rows, columns, profile, np.full_like(profile, heading), canvas.hemisphere(place[0])
    )


def add_moisture(
    canvas: Canvas,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    profile: NDArray[np.float64],
    heading: NDArray[np.float64],
    hemisphere: int,
) -> None:
    """Add moisture of this profile and the wind that carries it."""
    strength = canvas.numbers.uniform(0.8, 1.2) * profile
    for name, change in (("TMQ", 22.0), ("QREFHT", 0.003), ("PRECT", 2.5e-7)):
        canvas.add(name, rows, columns, change * strength)
    speed = 13 * strength
    for suffix, share in (("850", 1.0), ("BOT", 0.7)):
        canvas.add(f"U{suffix}", rows, columns, share * speed * np.cos(heading))
        canvas.add(f"V{suffix}", rows, columns, share * speed * np.sin(heading) * hemisphere)
