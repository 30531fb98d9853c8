{#
    A test is not run again if it is a constraint of the table, or if none of its tables has changed:
    they passed it when they were published.
#}
{% materialization test, adapter = "lakehouse" %}
    {% set read = [] %}
    {% for node in read_nodes(model.depends_on.nodes) %}
        {% do read.append(node.relation_name) %}
    {% endfor %}
    {% set passed = adapter.passed(model, read, are_known=tests_are_known()) %}
    {% if passed is none %}
        {{ return(dbt.materialization_test_default()) }}
    {% endif %}
    {% do store_raw_result("main", message="known to pass", code=none, rows_affected=none, agate_table=passed) %}
    {{ return({"relations": []}) }}
{% endmaterialization %}


{# Whether the published tables passed the tests as they are now. `lakehouse gold` says so. #}
{% macro tests_are_known() %}
    {{ return(env_var("LAKEHOUSE_TESTS_KNOWN", "") == "true") }}
{% endmacro %}


{# Generic test: fails if one of the columns is NULL in a row. It is a single query, whereas a
   `not_null` for each column is many, and readers wait for the tests of a build. #}
{% test no_nulls(model, columns) %}

select * from {{ model }}
where {{ columns | join(" is null or ") }} is null

{% endtest %}


{# Generic test: fails if a value is out of a range, as dbt_utils.accepted_range. NULL passes. #}
{% test accepted_range(model, column_name, min_value=none, max_value=none, inclusive=true) %}

{% set equal = "=" if inclusive else "" %}
select * from {{ model }}
where false
    {% if min_value is not none %}or not {{ column_name }} >{{ equal }} {{ min_value }}{% endif %}
    {% if max_value is not none %}or not {{ column_name }} <{{ equal }} {{ max_value }}{% endif %}

{% endtest %}
