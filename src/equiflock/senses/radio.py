"""The radio between agents: which messages arrive, when, and how exact what they say is.

At step m agent j sends its state and what it knew a step before, r_j(m), v_j(m) and z_j^1(m - 1) .. z_j^(K-1)(m - 1),
to everybody within R of it. Of the messages that reached agent i by step n, and that it has not forgotten, it uses for
each sender the one sent last, at step m say, and knows r_i(n) - r_j(m) and v_i(n) - v_j(m).
"""

from __future__ import annotations

from dataclasses import dataclass

from equiflock.runtime.checks import InputError, check_count, is_finite, shorten_repr

MAX_MEMORY_STEPS = 1_000
"""So many steps back agents may hear at most, and so long may a burst be: a flight's memory and time grow with them."""
MIN_BITS, MAX_BITS = 10, 32
MIN_BURST_FACTOR = 0.55
"""How much shorter than by chance bursts may be: so that a link never just alternates between lost and arrived."""


@dataclass(frozen=True)
class Radio:
    """How messages travel. By default all arrive at once and exact.

    What happens on a link at a step is a function of the seed, the flock, the step, the sender and the receiver alone:
    the same for any number of threads, and whatever happens on other links.
    """

    packet_loss: float = 0.0
    """The share of messages that are lost, from 0 to 1, each link and step by itself."""
    burst: float | None = None
    """The mean length of a run of lost messages on a link, in steps, with the same share lost in the long run
    (Gilbert-Elliott); each message by itself if left out, where the mean is 1 / (1 - loss)."""
    delay: int = 0
    """Steps from sending to hearing."""
    jitter: int = 0
    """Up to so many steps more, each message by itself, all equally likely."""
    noise: float = 0.0
    """The standard deviation of each entry of measured relative positions, in R, and velocities, in R per second."""
    quantization: int | None = None
    """Bits per number of a message: a sign, eight of exponent, and the rest of fraction, so that 32 is float32 and 16
    bfloat16; from 10 to 32. Exact if left out."""
    send_interval: int = 1
    """Agents send at every so many-th step only, at phases of their own."""
    last_known: int = 0
    """For how many steps after its arrival a message is used, or until one comes that was sent later; 0: at its arrival
    only."""
    seed: int = 0
    """Seeds everything that is random."""

    def __post_init__(self) -> None:
        if not (is_finite(self.packet_loss) and 0.0 <= self.packet_loss <= 1.0):
            raise InputError(f"loss must be a share from 0 to 1; got {shorten_repr(self.packet_loss)}")
        # A run of losses has at least one message; and the runs between them must have room for one that arrives.
        if self.burst is not None:
            least = (
                1.0
                if self.packet_loss in (0.0, 1.0)
                else max(1.0, max(self.packet_loss, MIN_BURST_FACTOR) / (1.0 - self.packet_loss))
            )
            if not (is_finite(self.burst) and least <= self.burst <= MAX_MEMORY_STEPS):
                raise InputError(
                    f"burst must be from {least:g} to {MAX_MEMORY_STEPS:,} steps with loss = {self.packet_loss:g}; got "
                    f"{shorten_repr(self.burst)}"
                )
        for name in ("delay", "jitter", "last_known"):
            check_count(name, getattr(self, name), least=0)
        if self.memory > MAX_MEMORY_STEPS:
            raise InputError(
                f"delay + jitter + last_known must be at most {MAX_MEMORY_STEPS:,} steps; got {self.memory:,}"
            )
        if not (is_finite(self.noise) and 0.0 <= self.noise <= 1.0):
            raise InputError(f"noise must be from 0 to 1 communication radius; got {shorten_repr(self.noise)}")
        if self.quantization is not None and not (
            MIN_BITS <= check_count("quantization", self.quantization) <= MAX_BITS
        ):
            raise InputError(
                f"quantization must be from 10 to 32 bits per number; got {shorten_repr(self.quantization)}"
            )
        check_count("send_interval", self.send_interval)
        check_count("seed", self.seed, least=0)

    @property
    def memory(self) -> int:
        """How many steps before now a message that is used may have been sent."""
        return self.delay + self.jitter + self.last_known

    @property
    def is_ideal(self) -> bool:
        """Whether all messages arrive at once and exact."""
        exact = self.noise == 0.0 and self.quantization is None
        return exact and self.packet_loss == 0.0 and self.send_interval == 1 and self.memory == 0


IDEAL_RADIO = Radio()
"""The paper's radio."""


def check_radio(radio: object) -> Radio:
    """`radio` if it is one, the perfect one for None, else a clear error."""
    if radio is None:
        return IDEAL_RADIO
    if not isinstance(radio, Radio):
        raise InputError(
            f"radio must be a Radio, such as equiflock.Radio(loss=0.2), or None; got {shorten_repr(radio)}"
        )
    return radio
