{#
    The gate between silver and gold: what a run may see of a silver table. Silver declares this for
    each column in the table property `lakehouse.personal`. The same rules therefore apply to
    everyone who runs dbt, and to rows as well as change feeds.
#}

{# The rules of the tables that this run reads, by table name. Fails if a rule is not known. #}
{% macro personal_columns() %}
    {% set found = {} %}
    {% for source in graph.sources.values() if source.schema == cut_schema() %}
        {% set table = source.source_name ~ "." ~ source.identifier %}
        {% for row in run_query("show tblproperties " ~ table).rows if row[0] == "lakehouse.personal" %}
            {% do found.update({table: fromjson(row[1])}) %}
            {% for column, how in found[table].items() if how not in ("mask", "null", "hash", "leave out") %}
                {% do exceptions.raise_compiler_error(
                    table ~ " protects " ~ column ~ " by '" ~ how ~ "', which this project does not "
                    ~ "support; update the project"
                ) %}
            {% endfor %}
        {% endfor %}
    {% endfor %}
    {{ return(found) }}
{% endmacro %}


{# The columns of a silver table as gold sees them. Columns without a rule are not changed. #}
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


{# Whether a value has been replaced: masked by `protected`, or hashed by silver. #}
{% macro is_protected(value) %}({{ value }} = '***' or {{ value }} rlike '^[0-9a-f]{64}$'){% endmacro %}
