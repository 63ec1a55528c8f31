//! A checkpoint's text side: tokenizer, chat template and the bytes of each token.

use super::control::{ControlToken, ControlTokens, Piece, free_marker};
use super::template::ChatTemplate;
use super::{TextError, bytes};
use serde_json::{Map, Value};
use std::path::Path;
use tokenizers::Tokenizer;

/// What a chat prompt is rendered from, already checked.
#[derive(Debug, Clone, Default)]
pub struct ChatInput {
    /// Array of message objects, contents as text.
    pub messages: Value,
    /// Array of tool definitions, or null.
    pub tools: Value,
    /// Extra template variables.
    pub template_kwargs: Map<String, Value>,
}

/// The files a [`TextModel`] is made of.
#[derive(Debug, Clone, Default)]
pub struct TextParts {
    /// `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// `tokenizer_config.json`; an empty object if there is none.
    pub config: Map<String, Value>,
    /// `chat_template.jinja`; `None` looks in the config.
    pub chat_template: Option<String>,
}

/// Turns conversations into token ids and token ids into bytes.
#[derive(Debug)]
pub struct TextModel {
    tokenizer: Tokenizer,
    control: ControlTokens,
    template: Option<ChatTemplate>,
    named_tokens: Map<String, Value>,
    /// Put before a prompt that does not begin with it.
    bos: Option<u32>,
    bytes: Vec<Option<Box<[u8]>>>,
    special: Vec<bool>,
}

impl TextModel {
    /// Reads `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` from `dir`; the
    /// last two may be absent.
    ///
    /// # Errors
    /// [`TextError`] naming the file and what is wrong with it.
    pub fn load(dir: &Path) -> Result<Self, TextError> {
        let config_path = dir.join("tokenizer_config.json");
        let config = match read_if_present(&config_path)? {
            Some(bytes) => serde_json::from_slice(&bytes)
                .map_err(|source| TextError::Json { path: config_path, source })?,
            None => Map::new(),
        };
        let path = dir.join("tokenizer.json");
        let tokenizer = std::fs::read(&path).map_err(|source| TextError::Read { path, source })?;
        let chat_template = match read_if_present(&dir.join("chat_template.jinja"))? {
            Some(bytes) => Some(String::from_utf8(bytes).map_err(|_| TextError::BadTemplate {
                reason: "chat_template.jinja is not UTF-8".to_owned(),
            })?),
            None => None,
        };
        Self::from_parts(TextParts { tokenizer, config, chat_template })
    }

    /// Builds the model from its files' contents.
    ///
    /// # Errors
    /// [`TextError`] naming the file and what is wrong with it.
    pub fn from_parts(parts: TextParts) -> Result<Self, TextError> {
        let mut tokenizer = Tokenizer::from_bytes(&parts.tokenizer)
            .map_err(|error| TextError::Tokenizer { reason: error.to_string() })?;
        // Control tokens are matched by us, in what the template wrote, and nowhere else.
        tokenizer.set_encode_special_tokens(true);
        let (bytes, special) = token_table(&tokenizer)?;
        let control = control_tokens(&tokenizer)?;
        let named_tokens = named_tokens(&parts.config);
        let bos = bos_to_add(&tokenizer, &parts.config, &named_tokens)?;
        let template = parts.chat_template.or_else(|| default_template(&parts.config));
        let template = template.map(ChatTemplate::new).transpose()?;
        Ok(Self { tokenizer, control, template, named_tokens, bos, bytes, special })
    }

    /// Renders and tokenizes a conversation, up to where the assistant's answer begins.
    ///
    /// Control tokens that the caller typed stay text. The template is the only source of control
    /// tokens, but for the BOS that `add_bos_token` asks for when the template wrote none.
    ///
    /// # Errors
    /// [`TextError::NoTemplate`], [`TextError::Refused`], [`TextError::Budget`]: the caller's.
    pub fn encode_chat(&self, input: &ChatInput) -> Result<Vec<u32>, TextError> {
        let template = self.template.as_ref().ok_or(TextError::NoTemplate)?;
        let kwargs = Value::Object(input.template_kwargs.clone());
        let marker = free_marker(&[&input.messages, &input.tools, &kwargs]).ok_or_else(|| {
            TextError::Refused { reason: "the text uses every Unicode noncharacter".to_owned() }
        })?;
        let mut context = self.named_tokens.clone();
        if let Value::Object(kwargs) = self.control.protect(&kwargs, marker) {
            context.extend(kwargs);
        }
        let messages = self.control.protect(&input.messages, marker);
        let tools = self.control.protect(&input.tools, marker);
        let input_bytes = text_bytes(&messages) + text_bytes(&tools) + text_bytes(&kwargs);
        context.insert("messages".to_owned(), messages);
        context.insert("tools".to_owned(), tools);
        context.insert("add_generation_prompt".to_owned(), Value::Bool(true));
        let rendered = template.render(&Value::Object(context), input_bytes)?;
        let mut ids = Vec::new();
        for piece in self.control.split(&rendered, marker) {
            match piece {
                Piece::Control(id) => ids.push(id),
                Piece::Text(text) => self.encode_text(&text, false, &mut ids)?,
            }
        }
        self.prepend_bos(&mut ids);
        Ok(ids)
    }

    /// Tokenizes a raw prompt; control tokens in it are text.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] if the tokenizer refuses it.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let mut ids = Vec::new();
        self.encode_text(text, true, &mut ids)?;
        self.prepend_bos(&mut ids);
        Ok(ids)
    }

    /// The bytes that token `id` stands for; empty for ids that the tokenizer does not know.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize).and_then(Option::as_deref).unwrap_or_default()
    }

    /// Whether `id` is a control token, which output text leaves out.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }

    /// The text of a whole output, as a client that waits for all of it would see it.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let ids = ids.iter().filter(|&&id| !(skip_special && self.is_special(id)));
        let bytes = ids.flat_map(|&id| self.token_bytes(id)).copied().collect::<Vec<_>>();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn encode_text(
        &self,
        text: &str,
        add_special: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        let encoding = self
            .tokenizer
            .encode_fast(text, add_special)
            .map_err(|error| TextError::Tokenizer { reason: error.to_string() })?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    fn prepend_bos(&self, ids: &mut Vec<u32>) {
        if let Some(bos) = self.bos.filter(|bos| ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
    }
}

fn read_if_present(path: &Path) -> Result<Option<Vec<u8>>, TextError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TextError::Read { path: path.to_owned(), source }),
    }
}

type TokenTable = (Vec<Option<Box<[u8]>>>, Vec<bool>);

fn token_table(tokenizer: &Tokenizer) -> Result<TokenTable, TextError> {
    let alphabet = bytes::alphabet();
    let added = tokenizer.get_added_tokens_decoder();
    let vocab = tokenizer.get_vocab(true);
    let len = vocab.values().max().map_or(0, |&id| id as usize + 1);
    let (mut table, mut special) = (vec![None; len], vec![false; len]);
    for (token, id) in vocab {
        let bytes = match added.get(&id) {
            Some(added) => {
                special[id as usize] = added.special;
                added.content.clone().into_bytes()
            }
            None => bytes::token_bytes(&token, &alphabet)
                .ok_or(TextError::NotByteLevel { id, token })?,
        };
        table[id as usize] = Some(bytes.into_boxed_slice());
    }
    Ok((table, special))
}

fn control_tokens(tokenizer: &Tokenizer) -> Result<ControlTokens, TextError> {
    let mut tokens = Vec::new();
    for (id, token) in tokenizer.get_added_tokens_decoder() {
        if !token.special {
            continue;
        }
        if token.single_word {
            return Err(TextError::SingleWord { token: token.content });
        }
        let (lstrip, rstrip) = (token.lstrip, token.rstrip);
        tokens.push(ControlToken { id, text: token.content, lstrip, rstrip });
    }
    Ok(ControlTokens::new(tokens))
}

/// `bos_token` and its like as text: the config writes them as a string or as an object.
fn named_tokens(config: &Map<String, Value>) -> Map<String, Value> {
    let mut named = Map::new();
    for key in ["bos_token", "eos_token", "pad_token", "unk_token"] {
        let value = config.get(key).map(|value| value.get("content").unwrap_or(value));
        if let Some(Value::String(text)) = value {
            named.insert(key.to_owned(), Value::String(text.clone()));
        }
    }
    named
}

fn bos_to_add(
    tokenizer: &Tokenizer,
    config: &Map<String, Value>,
    named: &Map<String, Value>,
) -> Result<Option<u32>, TextError> {
    if config.get("add_bos_token") != Some(&Value::Bool(true)) {
        return Ok(None);
    }
    let bos = named.get("bos_token").and_then(Value::as_str).ok_or(TextError::NoBos)?;
    let id = tokenizer
        .token_to_id(bos)
        .ok_or_else(|| TextError::UnknownToken { key: "bos_token", token: bos.to_owned() })?;
    Ok(Some(id))
}

/// `chat_template` in the config: one text, or a list of named ones of which `default` is taken.
fn default_template(config: &Map<String, Value>) -> Option<String> {
    match config.get("chat_template")? {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => items
            .iter()
            .find(|item| item["name"] == "default")
            .and_then(|item| item["template"].as_str())
            .map(str::to_owned),
        _ => None,
    }
}

fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| 2 + text_bytes(item)).sum(),
        Value::Object(map) => map.iter().map(|(k, v)| k.len() + 4 + text_bytes(v)).sum(),
        _ => 8,
    }
}
