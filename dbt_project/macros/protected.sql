{#
    The gate between silver and gold: what a run may see of a table of silver. Silver says it in the
    property `lakehouse.personal` of the table, by column; so it is the same for whoever runs dbt,
    and for rows as for the change feeds.
#}

{# What the tables say that this run reads, by name of the table; fails if it is not understood. #}
{% macro personal_columns() %}
    {% set found = {} %}
    {% for source in graph.sources.values() if source.schema == cut_schema() %}
        {% set table = source.source_name ~ "." ~ source.identifier %}
        {% for row in run_query("show tblproperties " ~ table).rows if row[0] == "lakehouse.personal" %}
            {% do found.update({table: fromjson(row[1])}) %}
            {% for column, how in found[table].items() if how not in ("mask", "null", "hash", "leave out") %}
                {% do exceptions.raise_compiler_error(
                    table ~ " protects " ~ column ~ " by '" ~ how ~ "', which this project does not "
                    ~ "know; update the project"
                ) %}
            {% endfor %}
        {% endfor %}
    {% endfor %}
    {{ return(found) }}
{% endmacro %}


{# The columns of a table of silver as gold sees them; what is neither named here is as it is. #}
{% macro protected(personal) %}
    {% set hidden, shown = [], [] %}
    {% for column, how in (personal or {}).items() %}
        {% do hidden.append(column) %}
        {% if how == "mask" %}
            {% do shown.append("if(" ~ column ~ " is null, null, '***') as " ~ column) %}
        {% elif how == "null" %}
            {% do shown.append("nullif(" ~ column ~ ", " ~ column ~ ") as " ~ column) %}
        {% elif how == "hash" %}
            {% do hidden.append(column ~ "_hash") %}
            {% do shown.append(column ~ "_hash as " ~ column) %}
        {% endif %}
    {% endfor %}
    {% set all = "* except (" ~ hidden | join(", ") ~ ")" if hidden else "*" %}
    {{ return(([all] + shown) | join(", ")) }}
{% endmacro %}


{# Whether a value is one that `protected` or silver's hash has put in the place of another. #}
{% macro is_protected(value) %}({{ value }} = '***' or {{ value }} rlike '^[0-9a-f]{64}$'){% endmacro %}
