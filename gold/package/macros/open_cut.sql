{#
    Determines what a run reads, and where it starts.

    Silver is read as of its latest snapshot (`silver.cuts`), through views in a schema that belongs
    to the run's target. The views show what `protected.sql` allows. In `gold_build`, the models
    begin where gold was last published. Only `lakehouse gold` builds there, and it has undone what
    a killed or failed run left behind. In any other schema, the models are built from scratch. The
    view `run` of the schema with the views tells the models which versions of a table their changes
    lie between.
#}

{% macro open_cut() %}
    {% if execute and flags.WHICH in ("build", "run") %}
        {% do require_own_schema() %}
        {% do require_snapshots() %}
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
        } %}
        {% do replace_view(cut_schema() ~ ".run", "'" ~ literal(tojson(run)) ~ "' as run") %}
    {% endif %}
{% endmacro %}


{# The schema of the views of silver that a run reads. Each target schema has its own. #}
{% macro cut_schema() %}{{ return("cut_" ~ target.schema) }}{% endmacro %}


{# Overrides dbt-spark's macro, so that the schema has a location in the lake. #}
{% macro lakehouse__create_schema(relation) %}{% do create_beside(relation.schema) %}{% endmacro %}


{# Create a schema in a folder beside that of `gold_build`, or at Spark's default location if
   `gold_build` does not exist. #}
{% macro create_beside(schema) %}
    {% set location = [] %}
    {% if schema != "gold_build" and adapter.check_schema_exists(none, "gold_build") %}
        {% for row in run_query("describe schema gold_build").rows if row[0] == "Location" %}
            {# Spark returns a URI and takes a path. A plus sign in the URI is not a blank. #}
            {% set uri = literal(row[1][: -("gold_build" | length)] ~ schema) %}
            {% set path = run_query("select url_decode(replace('" ~ uri ~ "', '+', '%2B'))").rows[0][0] %}
            {% do location.append(" location '" ~ literal(path) ~ "'") %}
        {% endfor %}
    {% endif %}
    {% do run_query("create schema if not exists " ~ schema ~ location | join) %}
{% endmacro %}


{# The id by which a build recognises its own views: given by `lakehouse gold`, or else dbt's. #}
{% macro this_build() %}{{ return(env_var("LAKEHOUSE_BUILD", invocation_id)) }}{% endmacro %}


{# Gold is published from `gold_build`. A plain dbt run there could change it during a build. #}
{% macro require_own_schema() %}
    {% if target.schema == "gold_build" and not env_var("LAKEHOUSE_BUILD", "") %}
        {% do exceptions.raise_compiler_error(
            "the schema gold_build belongs to `lakehouse gold`, which publishes from it; give dbt its "
            ~ "own schema, such as LAKEHOUSE_DBT_SCHEMA=gold_build_" ~ env_var("USER", "dev")
        ) %}
    {% elif not target.schema.startswith("gold_build") or target.schema == "gold_build_" %}
        {% do exceptions.raise_compiler_error(
            "the schema " ~ target.schema ~ " may hold tables that are not dbt's, and a run replaces "
            ~ "them; use a schema gold_build_<name> (LAKEHOUSE_DBT_SCHEMA)"
        ) %}
    {% endif %}
{% endmacro %}


{# Fail if a source reads silver's own tables. They change while the models are built one after
   another, and they show what `protected.sql` hides. #}
{% macro require_snapshots() %}
    {% for source in graph.sources.values() if source.schema == "silver" %}
        {% do exceptions.raise_compiler_error(
            "the source " ~ source.source_name ~ "." ~ source.name ~ " in " ~ source.original_file_path
            ~ " reads the schema silver, which changes while gold is built; `lakehouse gold sources`"
            ~ " writes sources that read a snapshot"
        ) %}
    {% endfor %}
{% endmacro %}


{# Overrides dbt's macro. Each run builds all its models in one schema. A model with a schema of its
   own is published to that schema instead of `gold`. #}
{% macro lakehouse__generate_schema_name(custom_schema_name, node) %}{{ return(target.schema) }}{% endmacro %}


{# A text, escaped to stand between the quotes of a SQL string. #}
{% macro literal(text) %}{{ return(text | replace("\\", "\\\\") | replace("'", "\\'")) }}{% endmacro %}


{# Create a view with the id of the build as its comment. `lakehouse gold` checks it before it
   publishes. #}
{% macro replace_view(name, columns) %}
    {% do run_query(
        "create or replace view " ~ name ~ " comment '" ~ this_build() ~ "' as select " ~ columns
    ) %}
{% endmacro %}


{#
    The latest snapshot of silver: its batch, and the versions of the tables by name. The table of a
    topic that was declared later has the version in which it was created, empty.
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
        {% set table = source.source_name ~ "." ~ source.identifier %}
        {% if table not in versions %}
            {% do require_table(source, table) %}
            {% do versions.update({table: 0}) %}
        {% endif %}
    {% endfor %}
    {{ return({"batch": rows[0][0], "versions": versions}) }}
{% endmacro %}


{# Fail if a source is no table of silver. #}
{% macro require_table(source, table) %}
    {% if adapter.get_relation(none, source.source_name, source.identifier) is none %}
        {% do exceptions.raise_compiler_error(
            "the source " ~ table ~ " in " ~ source.original_file_path ~ " does not exist: the topic file"
            ~ " does not declare it, or silver has not run since it does. `lakehouse gold sources` writes"
            ~ " the sources of the topic file; remove models that read others, or name the dbt project"
            ~ " of this topic file (dbt_project in lakehouse.toml)"
        ) %}
    {% endif %}
{% endmacro %}


{# The versions of the silver tables that were read for the last publication, and of the tables that
   were built from them, by name. Both are empty before the first publication, and in a schema other
   than `gold_build`, from which nothing is published. #}
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
                ~ "; rebuild all of gold with --full-refresh"
            ) %}
        {% endif %}
        {% do replace_view(
            source.relation_name,
            protected(personal.get(table)) ~ " from " ~ table ~ " version as of " ~ cut[table]
        ) %}
    {% endfor %}
{% endmacro %}


{# Drop models that were never published, so that they are built from scratch. In a schema other
   than `gold_build`, models that were not selected are left alone. #}
{% macro drop_what_was_not_published(built) %}
    {% set tables = graph.nodes.values() | selectattr("resource_type", "equalto", "model")
        | selectattr("config.materialized", "in", ["table", "incremental", "kept"]) %}
    {% for node in tables
        if node.alias not in built
        and (target.schema == "gold_build" or node.unique_id in selected_resources) %}
        {% set table = adapter.get_relation(none, node.schema, node.alias) %}
        {% if table is not none %}
            {% do adapter.drop_relation(table) %}
        {% endif %}
    {% endfor %}
{% endmacro %}
