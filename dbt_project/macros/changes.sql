{#
    The incremental strategy `changes`: a run costs what has changed since gold was last published,
    and leaves the rows that a full refresh would give; rows that are no more are deleted.

    A model of this strategy says with `unique_key` what identifies its rows. In an incremental run
    its rows have a further column, `is_gone`: whether the row of this key is no more. A key may
    come twice, then the row that is there wins. Two macros make such rows:

    - `changed_rows(relation, key)` and `current_rows(...)`, where each row is made from one row of
      the relation;
    - `changed_keys(...)`, `rows_of(...)` and `replacing(...)`, where rows are made of groups: those
      with a changed key are computed anew, and whatever else they had before is gone. The key of
      a group is never NULL.

    Both leave out what is as it was: Delta writes each file anew in which the merge finds a row,
    whether it changes or not, and so does each model that reads this one.
#}

{% macro dbt_spark_validate_get_incremental_strategy(raw_strategy, file_format) %}
    {% if raw_strategy == "changes" and file_format == "delta" %}
        {{ return(raw_strategy) }}
    {% endif %}
    {{ return(dbt_spark.dbt_spark_validate_get_incremental_strategy(raw_strategy, file_format)) }}
{% endmacro %}


{% macro dbt_spark_get_incremental_sql(
    strategy, source, target, existing, unique_key, incremental_predicates
) %}
    {% if strategy == "changes" %}
        {{ return(merge_changes(source, target, unique_key)) }}
    {% endif %}
    {{ return(dbt_spark.dbt_spark_get_incremental_sql(
        strategy, source, target, existing, unique_key, incremental_predicates
    )) }}
{% endmacro %}


{# The merge names its columns, and a model that changed is built anew. #}
{% macro process_schema_changes(on_schema_change, source_relation, target_relation) %}
    {% if config.get("incremental_strategy") != "changes" %}
        {{ return(dbt.process_schema_changes(on_schema_change, source_relation, target_relation)) }}
    {% endif %}
{% endmacro %}


{% macro merge_changes(source, target, unique_key) %}
    {% set columns = model.columns.keys() | list %}
    merge into {{ target }} as old
    using (
        select {{ few_rows("changes") }} * except (place) from (
            select *, row_number() over (
                partition by {{ unique_key | join(", ") }} order by is_gone
            ) as place
            from {{ source }}
        ) as changes where place = 1
    ) as new
    on {% for key in unique_key %}old.{{ key }} <=> new.{{ key }}{{ " and " if not loop.last }}{% endfor %}
    when matched and new.is_gone then delete
    when matched then update set
        {% for name in columns %}{{ name }} = new.{{ name }}{{ ", " if not loop.last }}{% endfor %}
    when not matched and not new.is_gone then insert
        ({{ columns | join(", ") }}) values (new.{{ columns | join(", new.") }})
{% endmacro %}


{# What became of a source or table since gold was last published; of a new table, all of it. #}
{% macro changes_of(relation) %}
    {% set run = this_run() %}
    {% set silver = "silver." ~ relation.identifier %}
    {% set columns = protected(run.personal.get(silver)) if relation.schema == cut_schema() else "*" %}
    {% if relation.schema == cut_schema() %}
        {% set table, end = silver, run.silver[silver] %}
        {% set begin = run.published.silver.get(silver) %}
    {% else %}
        {% set table, end = relation, none %}
        {% set begin = run.published.built.get(relation.identifier) %}
    {% endif %}
    {% if begin is none %}
        {{ return("(select " ~ columns ~ ", 'insert' as _change_type, 0L as _commit_version from "
            ~ table ~ ")") }}
    {% elif begin == end %}
        {{ return("(select " ~ columns ~ ", '' as _change_type, 0L as _commit_version from " ~ table
            ~ " where false)") }}
    {% endif %}
    {{ return("(select " ~ columns ~ " from " ~ change_feed(table, begin, end) ~ ")") }}
{% endmacro %}


{# The changes of a table after a version, and up to another if one is given. #}
{% macro change_feed(table, begin, end=none) %}
    {# By name, Spark 4.2 takes the table itself for its changes where a query reads both
       (SPARK-58330). #}
    {% set path = run_query("describe detail " ~ table).columns["location"].values()[0] %}
    {% set versions = [begin + 1] if end is none else [begin + 1, end] %}
    {{ return("table_changes_by_path('" ~ literal(path) ~ "', " ~ versions | join(", ") ~ ")") }}
{% endmacro %}


{# What `open_cut` has noted of this run; read once, as `graph` is shared by all models of a run. #}
{% macro this_run() %}
    {% if "run" not in graph %}
        {% set run = fromjson(run_query("select run from " ~ cut_schema() ~ ".run").rows[0][0]) %}
        {% if run.build != this_build() %}
            {% do exceptions.raise_compiler_error(
                "another run of dbt has begun in the schema " ~ target.schema ~ "; wait until it has "
                ~ "ended and run this again, or give each a schema of its own (LAKEHOUSE_DBT_SCHEMA)"
            ) %}
        {% endif %}
        {% do graph.update({"run": run}) %}
    {% endif %}
    {{ return(graph.run) }}
{% endmacro %}


{#
    A hint that some rows are few, where few rows of silver have changed: Spark does not know how
    long a change feed is, and would sort all of the table that it is joined with. A model of which
    few changes change nearly all has `spreads` in its `meta`, and gets none.
#}
{% macro few_rows(name) %}
    {% if is_incremental() and not config.get("meta", {}).get("spreads") and this_run().is_small %}
        {{ return("/*+ broadcast(" ~ name ~ ") */") }}
    {% endif %}
    {{ return("") }}
{% endmacro %}


{# The rows of a relation, in an incremental run those that changed, each as it is now. #}
{% macro changed_rows(relation, key) %}
    {% if is_incremental() %}
        select *, _change_type = 'delete' as is_gone from (
            select *, row_number() over (
                partition by {{ key | join(", ") }}
                order by _commit_version desc, _change_type = 'delete'
            ) as _place
            from {{ changes_of(relation) }}
            where _change_type != 'update_preimage'
        ) where _place = 1
    {% else %}
        select *, false as is_gone from {{ relation }}
    {% endif %}
{% endmacro %}


{# The groups, by some columns, to which a changed row of a relation belongs or has belonged. #}
{% macro changed_keys(relation, columns) %}
    select distinct {{ columns | join(", ") }} from {{ changes_of(relation) }}
{% endmacro %}


{# The rows of a relation, in an incremental run those of the groups that changed. #}
{% macro rows_of(relation, changed, key) %}
    select {{ few_rows(changed) }} * from {{ relation }}
    {% if is_incremental() %}
        left semi join {{ changed }} using ({{ key | join(", ") }})
    {% endif %}
{% endmacro %}


{# The rows of a CTE; in an incremental run also, as gone, all that the changed groups had. #}
{% macro replacing(rows, changed, key) %}
    {% if is_incremental() %}
        {{ differing(rows, changed, key) }}
    {% else %}
        select * from {{ rows }}
    {% endif %}
{% endmacro %}


{# The rows of a CTE with `is_gone`; in a full build those that are there. #}
{% macro current_rows(rows) %}
    {% if is_incremental() %}
        {{ differing("(select * from " ~ rows ~ " where not is_gone)", rows, config.get("unique_key")) }}
    {% else %}
        select * except (is_gone) from {{ rows }} where not is_gone
    {% endif %}
{% endmacro %}


{# New rows, and as gone those that the model had of some keys, without those that are in both. #}
{% macro differing(rows, changed, key) %}
    {% set columns = model.columns.keys() | join(", ") %}
    select {{ columns }}, min(is_gone) as is_gone from (
        select {{ columns }}, false as is_gone from {{ rows }}
        union all
        select {{ few_rows(changed) }} {{ columns }}, true as is_gone from {{ this }}
        left semi join {{ changed }} using ({{ key | join(", ") }})
    )
    group by {{ columns }}
    having min(is_gone) = max(is_gone)
{% endmacro %}
