{#
    A test of tables that did not change is not run again: they passed it when they were published.
    `lakehouse gold` says whether the tests are those of that time.
#}
{% materialization test, adapter = "lakehouse" %}
    {% set passed = none %}
    {% if env_var("LAKEHOUSE_TESTS_KNOWN", "") == "true" %}
        {% set read = [] %}
        {% for node in read_nodes(model.depends_on.nodes) %}
            {% do read.append(node.relation_name) %}
        {% endfor %}
        {% set passed = adapter.passed(read) %}
    {% endif %}
    {% if passed is none %}
        {{ return(dbt.materialization_test_default()) }}
    {% endif %}
    {% do store_result("main", response="unchanged", agate_table=passed) %}
    {{ return({"relations": []}) }}
{% endmaterialization %}


{# Generic test: fails if one of the columns is NULL in a row. It is a single query, whereas a
   `not_null` for each column is many, and readers wait for the tests of a build. #}
{% test no_nulls(model, columns) %}

select * from {{ model }}
where {{ columns | join(" is null or ") }} is null

{% endtest %}
