"""The radio between agents: which messages arrive, when, and how exact they are.

At step m agent j sends its state and its observations of the step before, r_j(m), v_j(m) and z_j^1(m - 1) ..
z_j^(K-1)(m - 1), to all agents within R. Of the messages that have arrived at agent i by step n and have not expired,
it uses the newest of each sender. If that was sent at step m, agent i observes r_i(n) - r_j(m) and v_i(n) - v_j(m).
"""

from __future__ import annotations

from dataclasses import dataclass

from equiflock._runtime.checks import InputError, check_count, is_finite, shorten_repr

MAX_MEMORY_STEPS = 1_000
"""The largest age of a message and length of a burst, in steps: the memory and time of a flight grow with them."""
MIN_BITS, MAX_BITS = 10, 32
MIN_BURST_FACTOR = 0.55
"""The shortest mean burst, as a share of its length by chance: shorter ones would make a link alternate."""


@dataclass(frozen=True)
class Radio:
    """How messages travel. By default all arrive at once and exact.

    The fate of a message is a function of the seed, the flock, the step, the sender and the receiver alone: it depends
    neither on the number of threads nor on other links.
    """

    packet_loss: float = 0.0
    """The share of messages that are lost, from 0 to 1, independently for each link and step."""
    burst: float | None = None
    """The mean length of a run of lost messages on a link, in steps, with the same share lost in the long run
    (Gilbert-Elliott). None: losses are independent, and the mean is 1 / (1 - packet_loss)."""
    delay: int = 0
    """Steps from sending to arrival."""
    jitter: int = 0
    """The largest further delay of a message, in steps; each message draws it uniformly from 0 to `jitter`."""
    noise: float = 0.0
    """The standard deviation of each entry of r_ij, in R, and of v_ij, in R per second."""
    quantization: int | None = None
    """Bits per number of a message, from 10 to 32: a sign, eight of exponent and the rest of fraction, so that 32 is
    float32 and 16 bfloat16. None: exact."""
    send_interval: int = 1
    """Steps between two messages of an agent; each agent has a random phase."""
    last_known: int = 0
    """Steps after its arrival for which a message is used, unless a newer one arrives; 0: at its arrival only."""
    seed: int = 0
    """The seed of all random numbers of the radio."""

    def __post_init__(self) -> None:
        if not (is_finite(self.packet_loss) and 0.0 <= self.packet_loss <= 1.0):
            raise InputError(f"packet_loss must be a share from 0 to 1; got {shorten_repr(self.packet_loss)}")
        # A run of losses has at least one message, and so has a run of arrivals between them.
        if self.burst is not None:
            least = (
                1.0
                if self.packet_loss in (0.0, 1.0)
                else max(1.0, max(self.packet_loss, MIN_BURST_FACTOR) / (1.0 - self.packet_loss))
            )
            if not (is_finite(self.burst) and least <= self.burst <= MAX_MEMORY_STEPS):
                raise InputError(
                    f"burst must be from {least:g} to {MAX_MEMORY_STEPS:,} steps "
                    f"with packet_loss = {self.packet_loss:g}; got {shorten_repr(self.burst)}"
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
                f"quantization must be from {MIN_BITS} to {MAX_BITS} bits per number; "
                f"got {shorten_repr(self.quantization)}"
            )
        check_count("send_interval", self.send_interval)
        check_count("seed", self.seed, least=0)

    @property
    def memory(self) -> int:
        """The largest age of a message that is used, in steps since it was sent."""
        return self.delay + self.jitter + self.last_known

    @property
    def latency(self) -> int:
        """The largest number of steps from sending a message to its arrival."""
        return self.delay + self.jitter

    @property
    def is_ideal(self) -> bool:
        """Whether all messages arrive at once and exact."""
        exact = self.noise == 0.0 and self.quantization is None
        return exact and self.packet_loss == 0.0 and self.send_interval == 1 and self.memory == 0


IDEAL_RADIO = Radio()
"""The paper's radio."""


def check_radio(radio: object) -> Radio:
    """Return `radio`, or the ideal radio for None; raise InputError for anything else."""
    if radio is None:
        return IDEAL_RADIO
    if not isinstance(radio, Radio):
        raise InputError(
            f"radio must be a Radio, such as equiflock.Radio(packet_loss=0.2), or None; got {shorten_repr(radio)}"
        )
    return radio
