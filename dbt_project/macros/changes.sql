{#
    The incremental strategy `changes`: a run costs what has changed since gold was last published,
    and leaves the rows that a full refresh would give; rows that are no more are deleted.

    A model of this strategy says with `unique_key` what identifies its rows. In an incremental run
    its rows have a further column, `is_gone`: whether the row of this key is no more. A key may
    come twice, then the row that is there wins. Two macros make such rows:

    - `changed_rows(relation, key)`, where each row is made from one row of the relation;
    - `changed_keys(...)`, `rows_of(...)` and `replacing(...)`, where rows are made of groups: those
      with a changed key are computed anew, and whatever else they had before is gone. The key of
      a group is never NULL.
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
        select * except (place) from (
            select *, row_number() over (
                partition by {{ unique_key | join(", ") }} order by is_gone
            ) as place
            from {{ source }}
        ) where place = 1
    ) as new
    on {% for key in unique_key %}old.{{ key }} <=> new.{{ key }}{{ " and " if not loop.last }}{% endfor %}
    when matched and new.is_gone then delete
    when matched and not (
        {% for name in columns %}old.{{ name }} <=> new.{{ name }}{{ " and " if not loop.last }}{% endfor %}
    ) then update set
        {% for name in columns %}{{ name }} = new.{{ name }}{{ ", " if not loop.last }}{% endfor %}
    when not matched and not new.is_gone then insert
        ({{ columns | join(", ") }}) values (new.{{ columns | join(", new.") }})
{% endmacro %}


{# What became of a source or table since gold was last published; of a new table, all of it. #}
{% macro changes_of(relation) %}
    {% set run = fromjson(run_query("select run from cut.run").rows[0][0]) %}
    {% set silver = "silver." ~ relation.identifier %}
    {% set columns = protected(run.personal.get(silver)) if relation.schema == "cut" else "*" %}
    {% if relation.schema == "cut" %}
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
    {# By name, Spark 4.2 takes the table itself for its changes where a query reads both
       (SPARK-58330). #}
    {% set path = run_query("describe detail " ~ table).columns["location"].values()[0] %}
    {% set versions = [begin + 1] if end is none else [begin + 1, end] %}
    {{ return("(select " ~ columns ~ " from table_changes_by_path('" ~ path ~ "', "
        ~ versions | join(", ") ~ "))") }}
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
    select * from {{ relation }}
    {% if is_incremental() %}
        left semi join {{ changed }} using ({{ key | join(", ") }})
    {% endif %}
{% endmacro %}


{# The rows of a CTE; in an incremental run also, as gone, all that the changed groups had. #}
{% macro replacing(rows, changed, key) %}
    {% if is_incremental() %}
        {% set columns = model.columns.keys() | join(", ") %}
        select {{ columns }}, false as is_gone from {{ rows }}
        union all
        select {{ columns }}, true as is_gone from {{ this }}
        left semi join {{ changed }} using ({{ key | join(", ") }})
    {% else %}
        select * from {{ rows }}
    {% endif %}
{% endmacro %}


{# The rows of a CTE with `is_gone`; in a full build those that are there. #}
{% macro current_rows(rows) %}
    {% if is_incremental() %}
        select * from {{ rows }}
    {% else %}
        select * except (is_gone) from {{ rows }} where not is_gone
    {% endif %}
{% endmacro %}
