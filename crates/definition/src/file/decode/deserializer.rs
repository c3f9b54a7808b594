//! A serde deserializer over the tree of a file.
//!
//! It differs from others in two points: errors have the path to the value, and a tag among the
//! fields selects the variant of an enum, without the buffering that loses paths and unknown
//! fields.

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::{DecodeError, DecodeFault};
use crate::file::path::PathSegment;
use crate::file::source::{SourceKey, SourceNode, SourceNodeKind};

/// The internally tagged enums, with their tags.
const TAGS: &[(&str, &str)] = &[("AgentFile", "kind"), ("NodeFile", "type"), ("StepFile", "type")];

/// Reads one node. `without` is the tag that was read already.
pub(crate) struct NodeDeserializer<'t> {
    node: &'t SourceNode,
    without: Option<&'static str>,
}

impl<'t> NodeDeserializer<'t> {
    pub(crate) fn new(node: &'t SourceNode) -> Self {
        Self { node, without: None }
    }

    /// Accepts a whole number written as `3.0`, as JSON Schema does.
    fn whole_number<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.kind {
            SourceNodeKind::Float(value)
                if value.fract() == 0.0 && (0.0..=WHOLE_FLOAT_MAX).contains(&value) =>
            {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is whole, and within the range in which all are exact"
                )]
                visitor.visit_u64(value as u64)
            }
            _ => self.deserialize_any(visitor),
        }
    }
}

/// Up to here every whole number is exact as a float.
const WHOLE_FLOAT_MAX: f64 = 9_007_199_254_740_992.0;

impl<'de> Deserializer<'de> for NodeDeserializer<'_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.node.kind {
            SourceNodeKind::Null => visitor.visit_unit(),
            SourceNodeKind::Bool(value) => visitor.visit_bool(*value),
            SourceNodeKind::Integer(value) => {
                if let Ok(value) = u64::try_from(*value) {
                    visitor.visit_u64(value)
                } else if let Ok(value) = i64::try_from(*value) {
                    visitor.visit_i64(value)
                } else {
                    let shown = value.to_string();
                    Err(serde::de::Error::invalid_value(Unexpected::Other(&shown), &visitor))
                }
            }
            SourceNodeKind::Float(value) => visitor.visit_f64(*value),
            SourceNodeKind::Text(text) => visitor.visit_str(text),
            SourceNodeKind::Sequence(items) => {
                visitor.visit_seq(SequenceItems { rest: items.iter().enumerate() })
            }
            SourceNodeKind::Mapping(entries) => visitor.visit_map(MappingEntries {
                rest: entries.iter(),
                without: self.without,
                value: None,
            }),
            SourceNodeKind::Pruned => Err(DecodeError::new(DecodeFault::Consequence)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.kind {
            SourceNodeKind::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let tag = TAGS.iter().find(|(tagged, _)| *tagged == name).map(|(_, tag)| *tag);
        match (tag, &self.node.kind) {
            (Some(tag), SourceNodeKind::Mapping(_)) => {
                visitor.visit_enum(TaggedMapping { node: self.node, tag, variants })
            }
            (Some(_), _) => {
                Err(DecodeError::new(DecodeFault::WrongType { expected: "a mapping".to_owned() }))
            }
            (None, SourceNodeKind::Text(text)) => {
                visitor.visit_enum(text.as_str().into_deserializer())
            }
            (None, _) => Err(DecodeError::new(DecodeFault::WrongType {
                expected: format!("one of {}", variants.join(", ")),
            })),
        }
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.whole_number(visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.whole_number(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.whole_number(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct SequenceItems<'t> {
    rest: std::iter::Enumerate<std::slice::Iter<'t, SourceNode>>,
}

impl<'de> SeqAccess<'de> for SequenceItems<'_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        let Some((index, node)) = self.rest.find(|(_, node)| node.kind != SourceNodeKind::Pruned)
        else {
            return Ok(None);
        };
        seed.deserialize(NodeDeserializer::new(node))
            .map(Some)
            .map_err(|error| error.under(PathSegment::Index(index)))
    }
}

struct MappingEntries<'t> {
    rest: std::slice::Iter<'t, (SourceKey, SourceNode)>,
    without: Option<&'static str>,
    value: Option<(&'t SourceKey, &'t SourceNode)>,
}

impl<'de> MapAccess<'de> for MappingEntries<'_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DecodeError> {
        let without = self.without;
        let is_read = |key: &SourceKey, node: &SourceNode| {
            node.kind != SourceNodeKind::Pruned && Some(&*key.text) != without
        };
        let Some((key, node)) = self.rest.find(|(key, node)| is_read(key, node)) else {
            return Ok(None);
        };
        self.value = Some((key, node));
        let key_text: StrDeserializer<'_, DecodeError> = key.text.as_str().into_deserializer();
        seed.deserialize(key_text).map(Some).map_err(|error| {
            error.in_tagged(without).at_key().under(PathSegment::Field(key.text.clone()))
        })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, DecodeError> {
        let Some((key, node)) = self.value.take() else {
            return Err(serde::de::Error::custom("a value was asked for before its key"));
        };
        seed.deserialize(NodeDeserializer::new(node))
            .map_err(|error| error.under(PathSegment::Field(key.text.clone())))
    }
}

/// A mapping with a tag field that selects the enum variant.
struct TaggedMapping<'t> {
    node: &'t SourceNode,
    tag: &'static str,
    variants: &'static [&'static str],
}

impl<'de, 't> EnumAccess<'de> for TaggedMapping<'t> {
    type Error = DecodeError;
    type Variant = NodeDeserializer<'t>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, NodeDeserializer<'t>), DecodeError> {
        let (tag, allowed) = (self.tag, self.variants);
        let Some((_, value)) = self.node.entry(tag) else {
            return Err(DecodeError::new(DecodeFault::MissingTag { tag, allowed }));
        };
        let variant = match &value.kind {
            SourceNodeKind::Text(text) => {
                let text: StrDeserializer<'_, DecodeError> = text.as_str().into_deserializer();
                seed.deserialize(text)
            }
            SourceNodeKind::Pruned => return Err(DecodeError::new(DecodeFault::Consequence)),
            _ => Err(DecodeError::new(DecodeFault::WrongType {
                expected: format!("one of {}", allowed.join(", ")),
            })),
        };
        let variant = variant.map_err(|error| error.under(PathSegment::Field(tag.to_owned())))?;
        Ok((variant, NodeDeserializer { node: self.node, without: Some(tag) }))
    }
}

impl<'de> VariantAccess<'de> for NodeDeserializer<'_> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<T::Value, DecodeError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        _fields: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_any(visitor)
    }
}
