"Packaging from settings.ini, the one place for version and dependencies."
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

config = ConfigParser(delimiters=["="], interpolation=None)
config.read("settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]
package = cfg["lib_path"]
extras = {key.removesuffix("_requirements"): cfg[key].split() for key in cfg if key.endswith("_requirements")}
extras["all"] = extras["charts"] + extras["scores"] + extras["corpora"] + extras["experiments"]
extras["dev"] += extras["all"] + extras["watch"] + extras["export"]

setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=Path("README.md").read_text(encoding="utf-8") if Path("README.md").exists() else "",
    long_description_content_type="text/markdown",
    author=cfg["author"],
    license="Apache-2.0",
    url=cfg["git_url"],
    keywords=cfg["keywords"],
    # with the records that the book reads, so that a chapter runs where there is no checkout
    packages=[*find_packages(include=[package, package + ".*"]), package + ".results"],
    package_dir={package + ".results": cfg["nbs_path"] + "/results"},
    package_data={package: ["py.typed", "*.pyi", "pretrained/**/*", "resources/**/*", "experiments/**/*.toml"],
                  package + ".results": ["*.json", "*.jsonl", "*.toml", "*.tsv", "sentences/*.tsv"]},
    python_requires=">=" + cfg["min_python"],
    install_requires=cfg["requirements"].split(),
    extras_require=extras,
    entry_points={
        "console_scripts": cfg["console_scripts"].split(),
        "nbdev": [f"{cfg['lib_name']}={cfg['lib_path']}._modidx:d"],
    },
    zip_safe=False,
)
