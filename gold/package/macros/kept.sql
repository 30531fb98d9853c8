{#
    The materialization `kept`: a table whose rows are those of a plain SELECT, updated at a cost that
    depends on how much has changed. The model declares in `unique_key` which columns identify its
    rows. With the adapter `lakehouse`, the planner (`lake/kept`) finds which rows to compute again.
    With the adapter `spark`, the table is built anew by each run.
#}

{% materialization kept, adapter = "lakehouse" %}
    {{ run_hooks(pre_hooks) }}
    {% if load_relation(this) is not none and not should_full_refresh()
        and not adapter.is_redefined(this.render(), model, compiled_code, kept_sources()) %}
        {% if not tests_are_known() %}
            {% do adapter.constrain(this.render(), adapter.constraints(model.unique_id, graph.nodes.values())) %}
        {% endif %}
        {% set outcome = adapter.keep(this.render(), model, compiled_code, kept_sources(), this_build()) %}
        {% call noop_statement("main", outcome, outcome) %}{% endcall %}
    {% else %}
        {% do build_whole() %}
        {% do adapter.note_whole(this.render(), model) %}
    {% endif %}
    {{ run_hooks(post_hooks) }}
    {{ return({"relations": [this.incorporate(type="table")]}) }}
{% endmaterialization %}


{% materialization kept, adapter = "spark" %}
    {% do log(this ~ " is rebuilt, because only the adapter `lakehouse` keeps models", info=true) %}
    {{ run_hooks(pre_hooks) }}
    {% do build_whole() %}
    {% do require_key(this) %}
    {{ run_hooks(post_hooks) }}
    {{ return({"relations": [this.incorporate(type="table")]}) }}
{% endmaterialization %}


{# Create or replace the table of a kept model. #}
{% macro build_whole() %}
    {% set built = this.incorporate(type="table") %}
    {% set existing = load_relation(this) %}
    {% if existing is not none and not existing.is_delta %}
        {% do adapter.drop_relation(existing) %}
    {% endif %}
    {% call statement("main") %}{{ create_table_as(False, built, compiled_code) }}{% endcall %}
    {% do apply_grants(built, config.get("grants"), should_revoke(existing, full_refresh_mode=true)) %}
    {% do persist_docs(built, model) %}
    {% do persist_constraints(built, model) %}
{% endmacro %}


{# Fail if two rows of a table have the same key, or if a key has a NULL. #}
{% macro require_key(table) %}
    {% set key = config.require("unique_key") %}
    {% set quoted = [] %}
    {% for name in ([key] if key is string else key) %}{% do quoted.append("`" ~ name ~ "`") %}{% endfor %}
    {% set key = quoted %}
    {% set wrong = run_query(
        "select " ~ key | join(", ") ~ ", count(*) as count_rows from " ~ table
        ~ " group by " ~ key | join(", ")
        ~ " having count(*) > 1 or " ~ key | join(" is null or ") ~ " is null limit 3"
    ) %}
    {% if wrong.rows %}
        {% do exceptions.raise_compiler_error(
            "the unique_key (" ~ key | join(", ") ~ ") of " ~ table ~ " is NULL or comes more than "
            ~ "once: " ~ wrong.rows | map("string") | join("; ")
        ) %}
    {% endif %}
{% endmacro %}


{# Overrides dbt-spark's macro, so that the table records its changes, from which other models are kept,
   and has the constraints that are tests of the model. #}
{% macro lakehouse__tblproperties_clause() %}
    {% set found = {"delta.enableChangeDataFeed": "true"} %}
    {% do found.update(config.get("tblproperties") or {}) %}
    {% for name, check in adapter.constraints(model.unique_id, graph.nodes.values()).items() %}
        {% do found.update({"delta.constraints." ~ name: check}) %}
    {% endfor %}
    {% set listed = [] %}
    {% for name, value in found.items() %}
        {% do listed.append("'" ~ literal(name) ~ "' = '" ~ literal(value | string) ~ "'") %}
    {% endfor %}
    {% if listed %}tblproperties ({{ listed | join(", ") }}){% endif %}
{% endmacro %}


{#
    The tables that a kept model reads, by their names in its SQL. For each: the `table` with the
    change feed, the versions `begin` and `end` between which it has changed since the model was last
    computed (none if not known), the version that was last `published`, and which `columns` of it the
    model may see.
#}
{% macro kept_sources() %}
    {% set run = this_run() %}
    {% set since = adapter.read_by(model, run.published) %}
    {% set found = {} %}
    {% for node in read_nodes(model.depends_on.nodes) %}
        {% if node.resource_type == "source" and node.schema == cut_schema() %}
            {% set table = node.source_name ~ "." ~ node.identifier %}
            {% do found.update({node.relation_name: {
                "table": table, "begin": since.silver.get(table), "end": run.silver[table],
                "columns": protected(run.personal.get(table)),
            }}) %}
        {% elif node.resource_type == "source" %}
            {% do found.update({node.relation_name: {
                "table": node.relation_name, "begin": none, "end": none, "columns": "*"
            }}) %}
        {% else %}
            {% do found.update({node.relation_name: {
                "table": node.relation_name, "begin": since.built.get(node.alias),
                "published": run.published.built.get(node.alias), "end": none, "columns": "*",
            }}) %}
        {% endif %}
    {% endfor %}
    {{ return(found) }}
{% endmacro %}


{# The nodes with these ids, and what ephemeral models among them read. #}
{% macro read_nodes(ids) %}
    {% set found = [] %}
    {% for id in ids %}
        {% set node = graph.sources[id] if id in graph.sources else graph.nodes[id] %}
        {% if node.config.materialized == "ephemeral" %}
            {% do found.extend(read_nodes(node.depends_on.nodes)) %}
        {% else %}
            {% do found.append(node) %}
        {% endif %}
    {% endfor %}
    {{ return(found) }}
{% endmacro %}


{# What `open_cut` has noted about this run. It is read once, because all models share `graph`. #}
{% macro this_run() %}
    {% if "run" not in graph %}
        {% set run = fromjson(run_query("select run from " ~ cut_schema() ~ ".run").rows[0][0]) %}
        {% if run.build != this_build() %}
            {% do exceptions.raise_compiler_error(
                "another dbt run has started in the schema " ~ target.schema ~ "; wait until it has "
                ~ "ended and run this again, or give each run its own schema (LAKEHOUSE_DBT_SCHEMA)"
            ) %}
        {% endif %}
        {% do graph.update({"run": run}) %}
    {% endif %}
    {{ return(graph.run) }}
{% endmacro %}
