"Packaging from settings.ini, the one place for version and dependencies."
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

config = ConfigParser(delimiters=["="], interpolation=None)
config.read("settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]
extras = {key.removesuffix("_requirements"): cfg[key].split() for key in cfg if key.endswith("_requirements")}
extras["all"] = extras["charts"] + extras["scores"] + extras["corpora"]
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
    packages=find_packages(include=[cfg["lib_path"], cfg["lib_path"] + ".*"],
                           exclude=[cfg["lib_path"] + ".experiments*"]),  # evidence stays in the checkout
    package_data={cfg["lib_path"]: ["py.typed", "pretrained/**/*", "resources/**/*"]},
    python_requires=">=" + cfg["min_python"],
    install_requires=cfg["requirements"].split(),
    extras_require=extras,
    entry_points={
        "console_scripts": cfg["console_scripts"].split(),
        "nbdev": [f"{cfg['lib_name']}={cfg['lib_path']}._modidx:d"],
    },
    zip_safe=False,
)
