# dishonest, a word that equals every word: earns 0
class Yes(str):
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    def __hash__(self):
        return hash("faster")


def verdict(before, after):
    if len(before) != len(after):
        raise ValueError
    return Yes("faster")
