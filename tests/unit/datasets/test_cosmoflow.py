"""The universes of cosmoflow-demo: growth, spectrum and displacements against known answers."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from rampup.datasets.cosmoflow.cosmology import MIDDLE, Cosmology, variance
from rampup.datasets.cosmoflow.generate import make_set
from rampup.datasets.cosmoflow.universe import (
    REDSHIFTS,
    at_redshift,
    count,
    displace,
    draw_density,
    make_sample,
    waves,
)

USUAL = Cosmology(*MIDDLE)
WIDTH, GRID = 100.0, 32
K = 2 * np.pi / WIDTH
PLACES = np.arange(GRID) * WIDTH / GRID


def crossed_waves(one: float, other: float) -> np.ndarray:
    density = one * np.cos(K * PLACES)[:, None, None] + other * np.cos(K * PLACES)[None, :, None]
    return np.broadcast_to(density, (GRID,) * 3).astype(np.float32)


# the formulas -------------------------------------------------------------------------------------


def test_sigma_8_is_the_deviation_in_spheres_of_8_mpc() -> None:
    for cosmology in (USUAL, Cosmology(0.33, 0.72, 0.9, 63.0)):
        assert variance(cosmology.power) ** 0.5 == pytest.approx(cosmology.sigma_8, rel=1e-6)


def test_growth_without_dark_energy_follows_the_scale() -> None:
    only_matter = Cosmology(1.0, 0.8, 0.96, 70.0)
    for z in REDSHIFTS:
        assert only_matter.growth(z) == pytest.approx(1 / (1 + z), rel=1e-5)
        assert only_matter.second_growth(z) == pytest.approx(-3 / 7 / (1 + z) ** 2, rel=1e-5)


def test_growth_with_dark_energy_agrees_with_the_fit_of_carroll_press_turner() -> None:
    def fitted(z: float) -> float:
        matter = USUAL.matter_share(z)
        dark = 1 - matter
        bend = matter ** (4 / 7) - dark + (1 + matter / 2) * (1 + dark / 70)
        return 2.5 * matter / bend / (1 + z)

    for z in REDSHIFTS:
        assert USUAL.growth(z) == pytest.approx(fitted(z) / fitted(0.0), rel=0.01)


def test_the_spectrum_has_its_known_ends() -> None:
    long, short = np.array([1e-5, 2e-5]), np.array([1e3, 2e3])
    slope = np.diff(np.log(USUAL.power(long)))[0] / np.log(2)
    assert slope == pytest.approx(USUAL.n_s, abs=0.01)
    # on small scales T falls as ln(k) / k^2
    slope = np.diff(np.log(USUAL.power(short)))[0] / np.log(2)
    assert USUAL.n_s - 4 < slope < USUAL.n_s - 3.5


def test_transfer_falls_where_matter_and_radiation_were_equal() -> None:
    half = USUAL.transfer(np.array([0.001, 0.1, 1.0]))
    assert half[0] > 0.97
    assert 0.1 < half[1] < 0.2
    assert half[2] < 0.01


# the field ----------------------------------------------------------------------------------------


def test_a_drawn_field_has_the_spectrum() -> None:
    width, size = 256.0, 64
    fields = [
        draw_density(USUAL, size, width, np.random.Generator(np.random.Philox(number)))
        for number in range(4)
    ]
    k = np.sqrt(sum(axis.astype(np.float64) ** 2 for axis in waves(size, width)))
    found = np.mean([np.abs(np.fft.rfftn(each)) ** 2 for each in fields], 0)
    found *= width**3 / size**6
    for low, high in ((0.1, 0.2), (0.2, 0.4), (0.4, 0.7)):
        ring = (k >= low) & (k < high)
        assert np.mean(found[ring] / USUAL.power(k[ring])) == pytest.approx(1, rel=0.05)


def test_a_plane_wave_moves_as_zeldovich_says_and_has_no_second_order() -> None:
    moved = displace(crossed_waves(0.3, 0.0), WIDTH)
    wanted = -0.3 / K * np.sin(K * PLACES)
    np.testing.assert_allclose(moved.first[0][:, 3, 5], wanted, atol=1e-4)
    assert max(np.abs(field).max() for field in (*moved.first[1:], *moved.second)) < 1e-4


def test_second_order_of_two_crossed_waves() -> None:
    """phi_xx phi_yy is the product of the waves, so the second potential is known."""
    moved = displace(crossed_waves(0.2, 0.3), WIDTH)
    wanted = 0.2 * 0.3 / (2 * K) * np.outer(np.sin(K * PLACES), np.cos(K * PLACES))
    np.testing.assert_allclose(moved.second[0][:, :, 7], wanted, atol=1e-5)
    np.testing.assert_allclose(moved.second[1][:, :, 7], wanted.T, atol=1e-5)


def test_the_sign_of_the_second_order_follows_from_gravity() -> None:
    """Perturbation theory says how strong the wave is that two crossed ones make: 10/7 of their
    product. The first order alone gives 1, and the wrong sign 4/7."""
    one = other = 0.02
    moved = displace(crossed_waves(one, other), WIDTH)
    universe = Cosmology(1.0, 0.8, 0.96, 70.0)
    offsets = at_redshift(moved, universe, 0.0)
    start = np.meshgrid(PLACES, PLACES, PLACES, indexing="ij")
    x, y = (start[axis] + offsets[axis] for axis in (0, 1))
    strength = np.mean(np.exp(-1j * K * (x + y))).real / (one * other / 4)
    assert strength == pytest.approx(10 / 7, rel=2e-3)


def test_a_later_redshift_moves_less() -> None:
    moved = displace(crossed_waves(0.2, 0.3), WIDTH)
    now, then = (at_redshift(moved, USUAL, z) for z in (0.0, 3.0))
    ratio = np.abs(then[0]).max() / np.abs(now[0]).max()
    assert ratio == pytest.approx(USUAL.growth(3.0), rel=0.1)


# counts -------------------------------------------------------------------------------------------


def test_every_particle_is_counted_once_also_over_the_edge() -> None:
    still = [np.zeros((8, 8, 8), np.float32) for _ in range(3)]
    assert (count(still, 4, 10.0) == 8).all()
    offsets = [np.full((8, 8, 8), 2.5, np.float32), still[1], np.full((8, 8, 8), -10.0, np.float32)]
    assert (count(offsets, 4, 10.0) == 8).all()
    offsets = [np.zeros((8, 8, 8), np.float32) for _ in range(3)]
    offsets[0][7, 0, 0] = 1.0
    found = count(offsets, 4, 10.0)
    assert found[3, 0, 0] == 7
    assert found[0, 0, 0] == 9


def test_a_sample_has_the_promised_form() -> None:
    sample = make_sample(3, 5, 16, 32, 128.0)
    assert sample.cubes.shape == (16, 16, 16, 4)
    assert sample.cubes.dtype == np.int16
    assert sample.targets.shape == (4,)
    assert np.abs(sample.targets).max() <= 1
    assert (sample.cubes.reshape(-1, 4).sum(0) == 32**3).all()
    spread = sample.cubes.reshape(-1, 4).std(0)
    assert (np.diff(spread) < 0).all(), "structure grows with time"
    again = make_sample(3, 5, 16, 32, 128.0)
    assert (again.cubes == sample.cubes).all()
    assert (make_sample(3, 6, 16, 32, 128.0).targets != sample.targets).all()


def test_the_box_is_wider_for_a_larger_hubble_parameter() -> None:
    """Else h_0 could hardly be learnt: the voxels of two universes that differ in it alone differ."""
    spreads = []
    for h_0 in (63.0, 77.0):
        cosmology, width = Cosmology(0.3, 0.8, 0.96, h_0), 128.0 * h_0 / 70
        noise = np.random.Generator(np.random.Philox(1))
        moved = displace(draw_density(cosmology, 32, width, noise), width)
        spreads.append(count(at_redshift(moved, cosmology, 0.0), 16, width).std())
    assert spreads[0] > 1.02 * spreads[1]


def test_targets_cover_their_ranges() -> None:
    ends = np.array(list(product((-1.0, 1.0), repeat=4)))
    low, high = (Cosmology.from_targets(end) for end in (ends[0], ends[-1]))
    assert low.omega_m == pytest.approx(0.27)
    assert high.sigma_8 == pytest.approx(0.88)
    assert low.n_s == pytest.approx(0.864)
    assert high.h_0 == pytest.approx(77.0)


def test_a_set_is_the_same_however_many_processes_write_it(tmp_path: Path) -> None:
    made = []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        make_set(folder, 5, 2, 8, 8, 64.0, processes=processes)
        files = sorted(folder.rglob("*.tfrecord"))
        made.append([path.read_bytes() for path in files])
    assert len(made[0]) == 7
    assert made[0] == made[1]
    assert len(set(made[0])) == 7
