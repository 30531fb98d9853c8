{#
    What a run reads, and where it starts.

    Silver is read as of its latest cut, through views in a schema of the run's own target, which let
    through what `protected.sql` says. In `gold_build` the models begin where gold was last published:
    `lakehouse gold`, which alone builds there, has undone what a killed or refused run left. In any
    other schema they are built from scratch. The view `run` of that schema tells the models between
    which versions of a table they find what has changed.
#}

{% macro open_cut() %}
    {% if execute and flags.WHICH in ("build", "run") %}
        {% do require_own_schema() %}
        {% set silver = latest_cut() %}
        {% set published = last_published() %}
        {% do create_beside(cut_schema()) %}
        {% set personal = personal_columns() %}
        {% do pin_silver(silver.versions, published.silver, personal) %}
        {% do drop_what_was_not_published(published.built) %}
        {% set run = {
            "build": this_build(),
            "silver_batch": silver.batch,
            "silver": silver.versions,
            "published": published,
            "personal": personal,
            "is_small": count_changes(silver.versions, published.silver) <= 50000,
        } %}
        {% do replace_view(cut_schema() ~ ".run", "'" ~ literal(tojson(run)) ~ "' as run") %}
    {% endif %}
{% endmacro %}


{# The schema of the views of silver that a run reads: each target schema has one. #}
{% macro cut_schema() %}{{ return("cut_" ~ target.schema) }}{% endmacro %}


{# dbt-spark's, with a place in the lake. #}
{% macro spark__create_schema(relation) %}{% do create_beside(relation.schema) %}{% endmacro %}


{# Create a schema in the folder beside that of `gold_build`; where Spark would, if there is none. #}
{% macro create_beside(schema) %}
    {% set place = [] %}
    {% if schema != "gold_build" and adapter.check_schema_exists(none, "gold_build") %}
        {% for row in run_query("describe schema gold_build").rows if row[0] == "Location" %}
            {# It is a URI, and what is set is a path; a URI has no blank that is a plus. #}
            {% set uri = literal(row[1][: -("gold_build" | length)] ~ schema) %}
            {% set path = run_query("select url_decode(replace('" ~ uri ~ "', '+', '%2B'))").rows[0][0] %}
            {% do place.append(" location '" ~ literal(path) ~ "'") %}
        {% endfor %}
    {% endif %}
    {% do run_query("create schema if not exists " ~ schema ~ place | join) %}
{% endmacro %}


{# By which a build knows its own views: the id that `lakehouse gold` gave it, or dbt's. #}
{% macro this_build() %}{{ return(env_var("LAKEHOUSE_BUILD", invocation_id)) }}{% endmacro %}


{# `gold_build` is what gold is published from; a bare dbt there would change it under a build. #}
{% macro require_own_schema() %}
    {% if target.schema == "gold_build" and not env_var("LAKEHOUSE_BUILD", "") %}
        {% do exceptions.raise_compiler_error(
            "the schema gold_build belongs to `lakehouse gold`, which publishes from it; give dbt a "
            ~ "schema of your own, such as LAKEHOUSE_DBT_SCHEMA=gold_build_" ~ env_var("USER", "dev")
        ) %}
    {% elif not target.schema.startswith("gold_build") or target.schema == "gold_build_" %}
        {% do exceptions.raise_compiler_error(
            "the schema " ~ target.schema ~ " may hold tables that are not dbt's, and a run drops "
            ~ "what it rebuilds; name yours gold_build_<name> (LAKEHOUSE_DBT_SCHEMA)"
        ) %}
    {% endif %}
{% endmacro %}


{# A text between the quotes of a SQL string. #}
{% macro literal(text) %}{{ return(text | replace("\\", "\\\\") | replace("'", "\\'")) }}{% endmacro %}


{# A view that says in its comment which build made it: `lakehouse gold` looks before it publishes. #}
{% macro replace_view(name, columns) %}
    {% do run_query(
        "create or replace view " ~ name ~ " comment '" ~ this_build() ~ "' as select " ~ columns
    ) %}
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
    {% for source in graph.sources.values() if source.schema == cut_schema() %}
        {% do versions.setdefault(source.source_name ~ "." ~ source.identifier, 0) %}
    {% endfor %}
    {{ return({"batch": rows[0][0], "versions": versions}) }}
{% endmacro %}


{# Versions of what was read from silver, and of what was built from it, by name; empty at first, and
   in a schema of its own, where nothing was published. #}
{% macro last_published() %}
    {% set rows = [] %}
    {% if target.schema == "gold_build" and adapter.get_relation(none, "gold", "cuts") is not none %}
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
    {% for source in graph.sources.values() if source.schema == cut_schema() %}
        {% set table = source.source_name ~ "." ~ source.identifier %}
        {% if seen.get(table, 0) > cut[table] and not flags.FULL_REFRESH %}
            {% do exceptions.raise_compiler_error(
                table ~ " went back from version " ~ seen[table] ~ " to " ~ cut[table]
                ~ "; build all of gold anew, with --full-refresh"
            ) %}
        {% endif %}
        {% do replace_view(
            source.relation_name,
            protected(personal.get(table)) ~ " from " ~ table ~ " version as of " ~ cut[table]
        ) %}
    {% endfor %}
{% endmacro %}


{# How many rows of silver have changed between what was published and a cut; a full refresh asks no
   feed, as it may be the remedy for one that is gone. #}
{% macro count_changes(cut, seen) %}
    {% set feeds = [] %}
    {% for source in graph.sources.values() if source.schema == cut_schema() %}
        {% set table = source.source_name ~ "." ~ source.identifier %}
        {% if seen.get(table, cut[table]) < cut[table] and not flags.FULL_REFRESH %}
            {% do feeds.append("select 1 from " ~ change_feed(table, seen[table], cut[table])) %}
        {% endif %}
    {% endfor %}
    {% set counted = "select count(*) from (" ~ feeds | join(" union all ") ~ ")" %}
    {{ return(run_query(counted).rows[0][0] if feeds else 0) }}
{% endmacro %}


{# Models that were never published are built from scratch. In a schema of one's own a run leaves
   those alone that were not selected. #}
{% macro drop_what_was_not_published(built) %}
    {% set tables = graph.nodes.values() | selectattr("resource_type", "equalto", "model")
        | selectattr("config.materialized", "in", ["table", "incremental"]) %}
    {% for node in tables
        if node.name not in built
        and (target.schema == "gold_build" or node.unique_id in selected_resources) %}
        {% set table = adapter.get_relation(none, node.schema, node.alias) %}
        {% if table is not none %}
            {% do adapter.drop_relation(table) %}
        {% endif %}
    {% endfor %}
{% endmacro %}
