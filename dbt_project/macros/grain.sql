{# Generic test: fails if two rows have the same `columns`, or if one of `not_null`, which are the
   same columns if not given, is NULL. It is one query where `unique` and `not_null` of each column
   are many, as readers wait for the tests of a build. #}
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
