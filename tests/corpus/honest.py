from tests.corpus.cases import Case

HONEST: dict[str, Case] = {}
