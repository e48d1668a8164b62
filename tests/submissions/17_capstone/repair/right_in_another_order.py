def repair(script):
    for better in (repair_run, repair_step, repair_model, repair_data):
        script = better(script)
    return script
