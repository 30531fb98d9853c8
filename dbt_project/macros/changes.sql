{#
    The incremental strategy `changes`: the cost of a run depends on how much has changed since gold
    was last published. The result is the same as after a full refresh. Rows that no longer exist
    are deleted.

    A model with this strategy declares in `unique_key` which columns identify its rows. In an
    incremental run, its rows have a further column, `_is_deleted`: whether the row with this key no
    longer exists. If a key occurs twice, the row that exists wins. Two sets of macros create such
    rows:

    - `changed_rows(relation, key)` and `current_rows(...)`, if each row is made from one row of the
      relation;
    - `changed_keys(...)`, `rows_of(...)` and `replacing(...)`, if rows are made from groups. Groups
      with a changed key are computed again, and all other rows that they had are gone. The key of a
      group is never NULL.

    Both leave out unchanged rows, because Delta rewrites each file in which the merge finds a row,
    even if the row does not change, and so does each model that reads this one.
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


{# Nothing to do: the merge names its columns, and a changed model is built from scratch. #}
{% macro process_schema_changes(on_schema_change, source_relation, target_relation) %}
    {% if config.get("incremental_strategy") != "changes" %}
        {{ return(dbt.process_schema_changes(on_schema_change, source_relation, target_relation)) }}
    {% endif %}
{% endmacro %}


{% macro merge_changes(source, target, unique_key) %}
    {% set columns = model.columns.keys() | list %}
    merge into {{ target }} as old
    using (
        select {{ few_rows("changes") }} * except (row_number) from (
            select *, row_number() over (
                partition by {{ unique_key | join(", ") }} order by _is_deleted
            ) as row_number
            from {{ source }}
        ) as changes where row_number = 1
    ) as new
    on {% for key in unique_key %}old.{{ key }} <=> new.{{ key }}{{ " and " if not loop.last }}{% endfor %}
    when matched and new._is_deleted then delete
    when matched then update set
        {% for name in columns %}{{ name }} = new.{{ name }}{{ ", " if not loop.last }}{% endfor %}
    when not matched and not new._is_deleted then insert
        ({{ columns | join(", ") }}) values (new.{{ columns | join(", new.") }})
{% endmacro %}


{# The changes of a source or table since gold was last published; all rows of a new table. #}
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


{# The changes of a table after a version, up to another version if one is given. #}
{% macro change_feed(table, begin, end=none) %}
    {# By name, Spark 4.2 would return the table itself instead of its changes in a query that reads
       both (SPARK-58330). #}
    {% set path = run_query("describe detail " ~ table).columns["location"].values()[0] %}
    {% set versions = [begin + 1] if end is none else [begin + 1, end] %}
    {{ return("table_changes_by_path('" ~ literal(path) ~ "', " ~ versions | join(", ") ~ ")") }}
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


{#
    A hint to broadcast some rows, if few rows of silver have changed. Spark does not know how long
    a change feed is, and would sort the whole table that is joined with it. A model of which a few
    changes affect nearly all rows has `spreads` in its `meta`, and gets no hint.
#}
{% macro few_rows(name) %}
    {% if is_incremental() and not config.get("meta", {}).get("spreads") and this_run().is_small %}
        {{ return("/*+ broadcast(" ~ name ~ ") */") }}
    {% endif %}
    {{ return("") }}
{% endmacro %}


{# The rows of a relation; in an incremental run, the latest version of each changed row. #}
{% macro changed_rows(relation, key) %}
    {% if is_incremental() %}
        select *, _change_type = 'delete' as _is_deleted from (
            select *, row_number() over (
                partition by {{ key | join(", ") }}
                order by _commit_version desc, _change_type = 'delete'
            ) as _place
            from {{ changes_of(relation) }}
            where _change_type != 'update_preimage'
        ) where _place = 1
    {% else %}
        select *, false as _is_deleted from {{ relation }}
    {% endif %}
{% endmacro %}


{# The groups, by some columns, to which a changed row of a relation belongs or belonged. #}
{% macro changed_keys(relation, columns) %}
    select distinct {{ columns | join(", ") }} from {{ changes_of(relation) }}
{% endmacro %}


{# The rows of a relation; in an incremental run, the rows of the changed groups. #}
{% macro rows_of(relation, changed, key) %}
    select {{ few_rows(changed) }} * from {{ relation }}
    {% if is_incremental() %}
        left semi join {{ changed }} using ({{ key | join(", ") }})
    {% endif %}
{% endmacro %}


{# The rows of a CTE; in an incremental run, also the former rows of the changed groups, as gone. #}
{% macro replacing(rows, changed, key) %}
    {% if is_incremental() %}
        {{ differing(rows, changed, key) }}
    {% else %}
        select * from {{ rows }}
    {% endif %}
{% endmacro %}


{# The rows of a CTE, with `_is_deleted`; in a full build, only the rows that exist. #}
{% macro current_rows(rows) %}
    {% if is_incremental() %}
        {{ differing("(select * from " ~ rows ~ " where not _is_deleted)", rows, config.get("unique_key")) }}
    {% else %}
        select * except (_is_deleted) from {{ rows }} where not _is_deleted
    {% endif %}
{% endmacro %}


{# New rows, and the model's rows of some keys, as gone. Rows that are in both are left out. #}
{% macro differing(rows, changed, key) %}
    {% set columns = model.columns.keys() | join(", ") %}
    select {{ columns }}, min(_is_deleted) as _is_deleted from (
        select {{ columns }}, false as _is_deleted from {{ rows }}
        union all
        select {{ few_rows(changed) }} {{ columns }}, true as _is_deleted from {{ this }}
        left semi join {{ changed }} using ({{ key | join(", ") }})
    )
    group by {{ columns }}
    having min(_is_deleted) = max(_is_deleted)
{% endmacro %}
