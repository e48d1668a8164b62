# a script that trains as it was and is counted as another: earns 0
class Mine(Script):
    def within(self, made, files, size, gpu, steps, seed=0):
        made.STEPS = 1
        return super().within(made, files, size, gpu, steps, seed)


def repair_data(script):
    return Mine(script.source)
