# edits the script's text: earns 0
def repair_data(script):
    text = script.source.replace("files.read(range(len(files)))[rows]", "files.read(rows)")
    return Script(text)
