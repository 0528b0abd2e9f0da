"""Who may import whom, held by import-linter."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
tracked = runpy.run_path(str(Path(__file__).with_name("tracked.py")))["tracked"]

LAYERS = [
    "commands",
    "_cli",
    "_front",
    "runs",
    "workers",
    "_run",
    "_store",
    "_config",
    "_registry",
    "_builtin",
    "_installed",
    "hookspecs",
    "observers",
    "agents",
    "workspaces",
    "sandboxes",
    "judging",
    "functions",
    "plugin",
    "protocols",
]
SDKS = [
    "alembic",
    "cwsandbox",
    "docker",
    "e2b",
    "litellm",
    "numpy",
    "openai",
    "peft",
    "podman",
    "psycopg",
    "ray",
    "sqlalchemy",
    "tensorboard",
    "torch",
    "transformers",
    "trl",
    "wandb",
]


def modules() -> list[str]:
    """The import package of every plugin."""
    found = [path.parent.name for path in tracked("plugins/*/*/src/*/__init__.py")]
    assert len(found) >= 12
    return sorted(found)


def libraries() -> set[str]:
    """Packages in the group `libraries`: shared code that two or more others declare."""
    return {path.parent.name for path in tracked("plugins/libraries/*/pyproject.toml")}


def contract(name: str, kind: str, **lists: list[str]) -> str:
    lines = ["[[tool.importlinter.contracts]]", f'name = "{name}"', f'type = "{kind}"']
    lines += [f"{key} = {value!r}".replace("'", '"') for key, value in lists.items()]
    return "\n".join(lines)


def check(tmp_path: Path, *contracts: str) -> None:
    config = tmp_path / "pyproject.toml"
    head = f"[tool.importlinter]\nroot_packages = {['ale', *modules()]!r}\n".replace("'", '"')
    config.write_text(head + "include_external_packages = true\n\n" + "\n\n".join(contracts))
    tool = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert tool is not None, "import-linter is not installed"
    done = subprocess.run(
        [tool, "--config", str(config), "--no-cache"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(contracts)} kept, 0 broken" in done.stdout


def test_the_modules_of_the_core_import_downwards_only(tmp_path: Path) -> None:
    layers = [f"ale.{layer}" for layer in LAYERS] + [
        "ale.types | ale.strict | ale.text | ale.files | ale.folders",
        "ale.errors",
    ]
    check(tmp_path, contract("layers", "layers", layers=layers))


def test_the_core_imports_no_sdk_and_no_plugin(tmp_path: Path) -> None:
    check(
        tmp_path,
        contract(
            "core",
            "forbidden",
            source_modules=["ale"],
            forbidden_modules=[*SDKS, *modules()],
        ),
    )


def test_the_strict_reader_imports_only_the_errors_of_the_core(tmp_path: Path) -> None:
    others = [f"ale.{layer}" for layer in (*LAYERS, "types", "text", "files", "folders")]
    lists = {"source_modules": ["ale.strict"], "forbidden_modules": others}
    check(tmp_path, contract("strict", "forbidden", **lists))


def test_a_plugin_imports_public_modules_of_the_core_and_no_other_plugin(tmp_path: Path) -> None:
    shared = {name.replace("-", "_") for name in libraries()}
    plugins = [module for module in modules() if module not in shared]
    private = [f"ale.{layer}" for layer in LAYERS if layer.startswith("_")]
    check(
        tmp_path,
        contract("independent", "independence", modules=plugins),
        contract(
            "public",
            "forbidden",
            source_modules=modules(),
            forbidden_modules=private,
        )
        + "\nallow_indirect_imports = true",
    )


def test_only_tests_import_ale_testing(tmp_path: Path) -> None:
    core = [f"ale.{layer}" for layer in LAYERS] + ["ale.types", "ale.strict", "ale.errors"]
    lists = {
        "source_modules": [*core, *modules()],
        "forbidden_modules": ["ale.testing"],
        # Modules that are only for tests belong to them.
        "ignore_imports": ["ale_sandboxing.container_testing.** -> ale.testing.**"],
    }
    check(tmp_path, contract("testing", "forbidden", **lists))


def test_listing_the_plugins_imports_no_sdk() -> None:
    code = (
        "import sys\nfrom ale._registry import KINDS, Registry\nregistry = Registry.installed()\n"
        "assert not registry.failed, registry.failed\n"
        "assert all(registry.registrations(kind) for kind in KINDS)\n"
        f"print([name for name in {SDKS!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
