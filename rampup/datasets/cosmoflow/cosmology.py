"""A universe as a few formulas: its power spectrum and how structure grows in it.

universe.py draws matter from them. Flat, with a cosmological constant. The power spectrum is that
of Eisenstein and Hu (1998) without the acoustic wiggles, equations 26 and 28 to 31; it is scaled to
sigma_8. Lengths are in Mpc/h and wave numbers in h/Mpc. Nothing here draws a random number.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

OMEGA_B = 0.045
CMB = 2.7255 / 2.7
"""The temperature of the microwave background, in units of 2.7 K."""
NAMES = ("omega_m", "sigma_8", "n_s", "h_0")
"""The parameters that a network is to find, in their order."""
MIDDLE = (0.3, 0.8, 0.96, 70.0)
SPREAD = 0.1
"""Each parameter lies within this part of its middle."""
RADIUS = 8.0
"""sigma_8 is the deviation of the matter in spheres of this radius."""
GROWTH_STEPS = 2048


@dataclass(frozen=True)
class Cosmology:
    omega_m: float
    sigma_8: float
    n_s: float
    h_0: float

    @classmethod
    def from_targets(cls, targets: Floats) -> "Cosmology":
        """Return the universe whose parameters are -1 at the low end of each range, and 1 at the
        high end."""
        values = np.array(MIDDLE) * (1 + SPREAD * targets)
        return cls(*values.tolist())

    @property
    def h(self) -> float:
        return self.h_0 / 100

    def power(self, k: Floats) -> Floats:
        """Return the linear power spectrum today, in (Mpc/h)^3."""
        return self.amplitude() * self._shape(k)

    def amplitude(self) -> float:
        """Return what the shape of the spectrum is multiplied by, so that sigma_8 is right."""
        return self.sigma_8**2 / variance(self._shape)

    def _shape(self, k: Floats) -> Floats:
        found: Floats = k**self.n_s * self.transfer(k) ** 2
        return found

    def transfer(self, k: Floats) -> Floats:
        """Return how much less a wave has grown than a very long one."""
        matter, baryons = self.omega_m * self.h**2, OMEGA_B * self.h**2
        share = OMEGA_B / self.omega_m
        horizon = 44.5 * np.log(9.83 / matter) / np.sqrt(1 + 10 * baryons**0.75)
        suppression = (
            1 - 0.328 * np.log(431 * matter) * share + 0.38 * np.log(22.3 * matter) * share**2
        )
        bend = 1 + (0.43 * k * self.h * horizon) ** 4
        gamma = self.omega_m * self.h * (suppression + (1 - suppression) / bend)
        q = k * CMB**2 / gamma
        rise = np.log(2 * np.e + 1.8 * q)
        found: Floats = rise / (rise + (14.2 + 731 / (1 + 62.5 * q)) * q**2)
        return found

    def matter_share(self, z: float) -> float:
        """Return the density of matter at a redshift, as a part of all there is."""
        matter = self.omega_m * (1 + z) ** 3
        return matter / (matter + 1 - self.omega_m)

    def growth(self, z: float) -> float:
        """Return the linear growth at a redshift: 1 today."""
        return self._grown(1 / (1 + z)) / self._grown(1.0)

    def second_growth(self, z: float) -> float:
        """Return the growth of the second order: about -3/7 of the square of the first."""
        correction = float(self.matter_share(z) ** (-1 / 143))
        return -3 / 7 * self.growth(z) ** 2 * correction

    def _grown(self, a: float) -> float:
        """Return H(a) times the integral of 1 / (a H)^3: growth without a scale."""
        scales = (np.arange(GROWTH_STEPS) + 0.5) / GROWTH_STEPS * a
        rates = np.sqrt(self.omega_m / scales**3 + 1 - self.omega_m)
        rate = float(np.sqrt(self.omega_m / a**3 + 1 - self.omega_m))
        return rate * float(np.mean(1 / (scales * rates) ** 3)) * a


def variance(power: Callable[[Floats], Floats], radius: float = RADIUS) -> float:
    """Return the variance of the matter in spheres, for a power spectrum."""
    logs = np.linspace(np.log(1e-4), np.log(50.0), 2000)
    k = np.exp(logs)
    x = k * radius
    window = 3 * (np.sin(x) - x * np.cos(x)) / x**3
    values = power(k) * window**2 * k**3 / (2 * np.pi**2)
    return float(np.sum((values[1:] + values[:-1]) / 2 * np.diff(logs)))
