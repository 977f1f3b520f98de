"`python -m annotated_transformer.experiments`: show a plan, or carry it out."
from .runner import main

if __name__ == "__main__":
    main()
