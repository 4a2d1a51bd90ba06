"""No secret is shown: by its name, by its form, in commands, settings and variables; and what is not
secret stays as it is."""

import base64
import secrets
from typing import Any

import pytest

from rampup.core.redact import (
    HIDDEN,
    redact,
    redact_config,
    redact_text,
    redact_variables,
    redact_words,
    to_stored,
)

COMMANDS = {
    "python t.py --password SECRET --lr 0.1": f"python t.py --password {HIDDEN} --lr 0.1",
    "python t.py token=SECRET epochs=3": f"python t.py token={HIDDEN} epochs=3",
    "t --api-key=SECRET --secret SECRET": f"t --api-key={HIDDEN} --secret {HIDDEN}",
    "t --password 12345 --max-tokens 512": f"t --password {HIDDEN} --max-tokens 512",
    "t --tokenizer bert --passes 3 --token": "t --tokenizer bert --passes 3 --token",
    "t --token --verbose": "t --token --verbose",
}
FORMS = (
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJyb290In0.c2lnbmF0dXJl",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_11ABCDEFG0abcdefghij",
    "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYz",
    "0f1e2d3c4b5a69788796a5b4c3d2e1f001234567",
    "c2VjcmV0LXZhbHVlLWZvci10ZXN0aW5nLTEyMzQ1Njc4OTA=",
)
NO_SECRETS = (
    "/home/ada/projects/climate/data/train/Set1/part-000000000001",
    "data/imagenet/Train2012/shards/validation",
    "/spack/gcc-12.2.0-abcdefghijklmnopqrstuvwxyz123456/lib:/usr/lib",
    "gcc/12.2.0-abcdefghijklmnopqrstuvwxyz123456:openmpi/4.1.5",
    "resnet50v2_imagenet_pretrained_weights_224x224",
    "LlamaForSequenceClassificationWithAdapters",
    "shapes.model:LitShapes",
    "20261117-010101-nice-model-abc234",
    "node[001-128],node[300-400]",
    "https://example.com/a/b?size=3",
    "hf_transfer",
    "train_loss = 0.25",
)


@pytest.mark.parametrize(("command", "shown"), COMMANDS.items())
def test_the_values_of_secret_options_are_hidden(command: str, shown: str) -> None:
    assert " ".join(redact_words(command.split())) == shown


def test_a_command_for_a_shell_is_looked_through() -> None:
    line = "export TOKEN=SECRET; t --password SECRET && curl https://u:SECRET@host/x?token=SECRET"
    shown = redact_words(["bash", "-c", f"{line} -H 'Authorization: Bearer SECRET'"])[2]
    assert "SECRET" not in shown
    assert shown.startswith(f"export TOKEN={HIDDEN}; t --password {HIDDEN} && curl https://")
    assert "@host/x?token=" in shown


@pytest.mark.parametrize("form", FORMS)
def test_what_looks_like_a_token_is_hidden_anywhere(form: str) -> None:
    assert redact_text(form) == HIDDEN
    assert redact_text(f"see {form}, please") == f"see {HIDDEN}, please"
    assert redact_words(["t", f"--comment={form}"]) == ["t", f"--comment={HIDDEN}"]


def test_long_random_texts_are_hidden() -> None:
    made = [secrets.token_urlsafe(32) for _ in range(300)]
    made += [base64.b64encode(secrets.token_bytes(30)).decode() for _ in range(300)]
    made += [secrets.token_hex(16) for _ in range(300)]
    assert sum(HIDDEN not in redact_text(text) for text in made) < 0.05 * len(made)


@pytest.mark.parametrize("text", NO_SECRETS)
def test_paths_and_names_are_shown(text: str) -> None:
    assert redact_text(text) == text


def test_passwords_in_urls_are_hidden() -> None:
    assert redact_text("https://user:SECRET@host/x") == f"https://{HIDDEN}@host/x"
    assert redact_text("postgres://u:p:a@ss@db/x") == f"postgres://{HIDDEN}@db/x"
    assert redact_text("ssh://git@host/x") == "ssh://git@host/x"


def test_a_commit_is_no_secret() -> None:
    commit = "3f786850e387550fdab836ed7e6dc881de23001b"
    assert redact({"code": {"commit": commit}}) == {"code": {"commit": commit}}
    assert redact_words(["t", "--revision", commit]) == ["t", "--revision", commit]
    assert redact_words(["t", f"sha256={commit}"]) == ["t", f"sha256={commit}"]


def test_variables_are_hidden_by_any_part_of_their_name() -> None:
    names = ("SLURM_JWT", "OLDPWD", "X_SESSION_Y", "COOKIEJAR", "SIGNATURE", "AUTHOR", "APIKEY")
    assert set(redact_variables(dict.fromkeys(names, "x")).values()) == {HIDDEN}
    shown = redact_variables({"TF_URL": "https://user:SECRET@host/x", "OMP_NUM_THREADS": "4"})
    assert shown == {"TF_URL": f"https://{HIDDEN}@host/x", "OMP_NUM_THREADS": "4"}


def test_a_configuration_keeps_what_is_not_secret() -> None:
    config: dict[str, Any] = {
        "train": {"api_key": "x", "apiKey": "x", "lr": 0.1, "max_tokens": 5, "seed": 12},
        "command": ["t", "--token", "SECRET"],
        "cluster": {
            "name": "c",
            "env": {"WANDB_API_KEY": "x", "A": "1"},
            "variables": {"WANDB_API_KEY": "y"},
            "max_nodes": 2,
        },
        "environment": {"variables": {"MY_JWT": "x"}, "modules": []},
        "origins": {"train.api_key": "command line"},
    }
    shown = redact_config(config)
    assert shown["train"] == {**config["train"], "api_key": HIDDEN, "apiKey": HIDDEN}
    assert shown["command"] == ["t", "--token", HIDDEN]
    assert shown["cluster"] == {
        **config["cluster"],
        "env": {"WANDB_API_KEY": HIDDEN, "A": "1"},
        "variables": {"WANDB_API_KEY": HIDDEN},
    }
    assert shown["environment"] == {"variables": {"MY_JWT": HIDDEN}, "modules": []}
    assert shown["origins"] == config["origins"]


def test_settings_are_stored_without_secrets() -> None:
    given = {"password": 12345, "tokens": 7, "url": "http://a:b@c", "names": ["a", "b"], "f": 0.5}
    stored = {**given, "password": HIDDEN, "url": f"http://{HIDDEN}@c"}
    assert to_stored(given) == stored
