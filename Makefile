PY ?= python3
BIN := .venv/bin
