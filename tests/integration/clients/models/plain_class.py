"""A model that declares nothing: it generates and cannot count."""


class Model:
    generate_options = ()

    def generate(self, prompt, options):
        yield from ("plain ", "words ", str(sorted(options)))

    def embed(self, texts):
        return [[1.0, 2.0, 3.0]] * len(texts)
