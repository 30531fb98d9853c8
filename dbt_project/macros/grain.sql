{# Generic test: fails if two rows have the same `columns`, or if one of the columns `not_null` is
   NULL (by default, the same columns). It is a single query, whereas `unique` and a `not_null` per
   column are many, and readers wait for the tests of a build. #}
{% test grain(model, columns, not_null=none) %}

select
    {{ columns | join(', ') }},
    count(*) as count_rows
from {{ model }}
group by {{ columns | join(', ') }}
having
    count(*) > 1
    {%- for column in not_null or columns %}
    or count({{ column }}) != count(*)
    {%- endfor %}

{% endtest %}
