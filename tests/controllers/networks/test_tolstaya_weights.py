"""TDAGNN weights go to Tolstaya's layout and back, and mean the same there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import make_network
from equiflock.controllers.networks.tolstaya_weights import from_tolstaya, to_tolstaya


def test_tolstaya_layout_computes_the_same_accelerations() -> None:
    network = make_network("tdagnn", seed=5)
    state = to_tolstaya(network)  # type: ignore[arg-type]
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == {
        "conv_layers.0.weight": (32, 6, 3, 1),
        "conv_layers.0.bias": (32,),
        "conv_layers.1.weight": (32, 32, 1, 1),
        "conv_layers.1.bias": (32,),
        "conv_layers.2.weight": (2, 32, 1, 1),
        "conv_layers.2.bias": (2,),
    }
    z = torch.randn(1, 7, 3, 3, 2)
    # [vx, rx/r^4, rx/r^2, vy, ry/r^4, ry/r^2] for each hop, as an image of K x N pixels.
    x = torch.cat([z[..., 0], z[..., 1]], dim=-1)[0].permute(2, 1, 0)[None]
    for n in range(3):
        x = torch.nn.functional.conv2d(x, state[f"conv_layers.{n}.weight"], state[f"conv_layers.{n}.bias"])
        x = torch.tanh(x) if n < 2 else x
    torch.testing.assert_close(network(z)[0], x[0, :, 0].T)


def test_round_trip_preserves_weights(tmp_path: Path) -> None:
    network = make_network("tdagnn", seed=6)
    torch.save(to_tolstaya(network), tmp_path / "theirs.pt")  # type: ignore[arg-type]
    back = from_tolstaya(tmp_path / "theirs.pt")
    for name, tensor in network.state_dict().items():
        assert (back.state_dict()[name] == tensor).all()


def test_wrong_state_dicts_raise(tmp_path: Path) -> None:
    state = to_tolstaya(make_network("tdagnn"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected a state dict of"):
        from_tolstaya({"weights": torch.zeros(1)})
    with pytest.raises(InputError, match=r"must have shape \(32, 6, K, 1\)"):
        from_tolstaya(state | {"conv_layers.0.weight": torch.zeros(32, 6, 3)})
    with pytest.raises(InputError, match="the weights do not fit"):
        from_tolstaya(state | {"conv_layers.2.bias": torch.zeros(3)})
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(InputError, match="is not a readable torch file of weights"):
        from_tolstaya(tmp_path / "text.pt")
    with pytest.raises(InputError, match="there is no such file"):
        from_tolstaya(tmp_path / "nothing.pt")
    with pytest.raises(InputError, match="must be tdagnn for D = 2"):
        to_tolstaya(make_network("tdagnn-tf"))  # type: ignore[arg-type]


def test_file_with_code_is_not_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (tmp_path / "sprung",))  # type: ignore[return-value]

    torch.save({"conv_layers.0.weight": Trap()}, tmp_path / "trap.pt")
    with pytest.raises(InputError, match="is not a readable torch file of weights"):
        from_tolstaya(tmp_path / "trap.pt")
    assert not (tmp_path / "sprung").exists()
