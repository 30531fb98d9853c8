{#
    What a run reads, and where it starts.

    Silver is read as of its latest cut, through views in the schema `cut`, which let through what
    `protected.sql` says. The tables of gold begin
    as they were when gold was last published: what a run has left behind that was killed, or whose
    tests failed, is undone first. The view `cut.run` tells the models between which versions of a
    table they find what has changed.
#}

{% macro open_cut() %}
    {% if execute and flags.WHICH in ("build", "run") %}
        {% set silver = latest_cut() %}
        {# An evaluation has a schema of its own, where nothing was published. #}
        {% set published = {"silver": {}, "built": {}}
            if var("hold_out_last_invoice") else last_published() %}
        {% do run_query("create schema if not exists cut") %}
        {% set personal = personal_columns() %}
        {% do pin_silver(silver.versions, published.silver, personal) %}
        {% do undo_what_was_not_published(published.built) %}
        {% set run = {
            "silver_batch": silver.batch,
            "silver": silver.versions,
            "published": published,
            "personal": personal,
            "is_small": count_changes(silver.versions, published.silver) <= 50000,
        } %}
        {% do run_query("create or replace view cut.run as select '" ~ tojson(run) ~ "' as run") %}
    {% endif %}
{% endmacro %}


{#
    The latest cut of silver: its batch, and versions of the tables by name. A table of a topic that
    was declared since is as it was created, empty.
#}
{% macro latest_cut() %}
    {% set rows = run_query(
        "select silver_batch, to_json(versions) from silver.cuts"
        ~ " order by committed_at desc limit 1"
    ).rows %}
    {% if not rows %}
        {% do exceptions.raise_compiler_error(
            "silver.cuts is empty: silver has not finished a batch yet; run `lakehouse silver`"
        ) %}
    {% endif %}
    {% set versions = fromjson(rows[0][1]) %}
    {% for source in graph.sources.values() if source.schema == "cut" %}
        {% do versions.setdefault(source.source_name ~ "." ~ source.identifier, 0) %}
    {% endfor %}
    {{ return({"batch": rows[0][0], "versions": versions}) }}
{% endmacro %}


{# Versions of what was read from silver, and of what was built from it, by name; empty at first. #}
{% macro last_published() %}
    {% set rows = [] %}
    {% if adapter.get_relation(none, "gold", "cuts") is not none %}
        {% set rows = run_query(
            "select to_json(silver_versions), to_json(built_versions) from gold.cuts"
            ~ " order by published_at desc limit 1"
        ).rows %}
    {% endif %}
    {% if not rows %}
        {{ return({"silver": {}, "built": {}}) }}
    {% endif %}
    {{ return({"silver": fromjson(rows[0][0]), "built": fromjson(rows[0][1])}) }}
{% endmacro %}


{% macro pin_silver(cut, seen, personal) %}
    {% for source in graph.sources.values() if source.schema == "cut" %}
        {% set table = source.source_name ~ "." ~ source.identifier %}
        {% if seen.get(table, 0) > cut[table] and not flags.FULL_REFRESH %}
            {% do exceptions.raise_compiler_error(
                table ~ " went back from version " ~ seen[table] ~ " to " ~ cut[table]
                ~ "; build all of gold anew, with --full-refresh"
            ) %}
        {% endif %}
        {% do run_query(
            "create or replace view " ~ source.relation_name ~ " as select "
            ~ protected(personal.get(table)) ~ " from " ~ table ~ " version as of " ~ cut[table]
        ) %}
    {% endfor %}
{% endmacro %}


{# How many rows of silver have changed between what was published and a cut; a full refresh asks no
   feed, as it may be the remedy for one that is gone. #}
{% macro count_changes(cut, seen) %}
    {% set feeds = [] %}
    {% for source in graph.sources.values() if source.schema == "cut" %}
        {% set table = source.source_name ~ "." ~ source.identifier %}
        {% if seen.get(table, cut[table]) < cut[table] and not flags.FULL_REFRESH %}
            {% do feeds.append("select 1 from " ~ change_feed(table, seen[table], cut[table])) %}
        {% endif %}
    {% endfor %}
    {% set counted = "select count(*) from (" ~ feeds | join(" union all ") ~ ")" %}
    {{ return(run_query(counted).rows[0][0] if feeds else 0) }}
{% endmacro %}


{# `lakehouse gold` has brought the tables back, without Spark, in a hundredth of the time. #}
{% macro undo_what_was_not_published(built) %}
    {% set undone = env_var("LAKEHOUSE_UNDONE", "") == "true" %}
    {% set tables = graph.nodes.values() | selectattr("resource_type", "equalto", "model")
        | selectattr("config.materialized", "in", ["table", "incremental"]) %}
    {% for node in tables %}
        {% set table = adapter.get_relation(none, node.schema, node.alias) %}
        {% set version = built.get(node.name) %}
        {% if table is not none and version is none %}
            {% do adapter.drop_relation(table) %}
        {% elif table is not none and not undone %}
            {% if run_query("describe history " ~ table ~ " limit 1").rows[0][0] != version %}
                {% do run_query("restore table " ~ table ~ " to version as of " ~ version) %}
            {% endif %}
        {% endif %}
    {% endfor %}
{% endmacro %}
