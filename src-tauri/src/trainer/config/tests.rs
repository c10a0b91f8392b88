use super::*;
use crate::exit::Reason;

fn set(key: &str, value: &str) -> Result<TrainConfig, ConfigError> {
    let mut config = TrainConfig::default();
    config.set(key, value).map(|()| config)
}

fn message(key: &str, value: &str) -> String {
    set(key, value).unwrap_err().to_string()
}

#[test]
fn values_are_read_into_their_fields() {
    assert_eq!(set("epochs", "3").unwrap().epochs, 3);
    assert_eq!(set("box", "5").unwrap().r#box, 5.0);
    assert_eq!(set("weight_decay", "1e-4").unwrap().weight_decay, 1e-4);
    assert!(set("exist-ok", "true").unwrap().exist_ok);
    assert_eq!(set("optimizer", "sgd").unwrap().optimizer, "SGD");
    assert_eq!(set("pretrained", "False").unwrap().pretrained, None);
    assert_eq!(set("device", "0").unwrap().device, DeviceChoice::Cuda { index: 0 });
    assert_eq!(set("fliplr", "0.25").unwrap().augment.fliplr, 0.25);
}

#[test]
fn every_key_is_distinct_and_shows_what_it_would_accept() {
    let config = TrainConfig { data: "d.yaml".into(), ..TrainConfig::default() };
    let keys: std::collections::BTreeSet<_> = TrainConfig::table().iter().map(|setting| setting.key).collect();
    assert_eq!(keys.len(), TrainConfig::table().len());
    for setting in TrainConfig::table() {
        let shown = (setting.show)(&config);
        let mut copy = config.clone();
        copy.set(setting.key, &shown).unwrap_or_else(|error| panic!("the default is refused: {error}"));
        assert_eq!(copy, config, "`{}` is unchanged by its own value", setting.key);
    }
}

#[test]
fn refused_values_leave_the_config_unchanged() {
    let mut config = TrainConfig::default();
    for (key, value) in [
        ("epochs", "0"),
        ("epochs", "ten"),
        ("epochs", "1.5"),
        ("batch", "-1"),
        ("imgsz", "-32"),
        ("lr0", "nan"),
        ("lr0", "inf"),
        ("momentum", "1.1"),
        ("fraction", "0"),
        ("val", "maybe"),
        ("optimizer", "Adam"),
        ("device", "tpu"),
        ("data", ""),
        ("pretrained", "True"),
        ("seed", "99999999999999999999"),
    ] {
        let error = config.set(key, value).unwrap_err();
        assert_eq!(error.reason(), Reason::BadValue, "{key}={value}");
    }
    assert_eq!(config, TrainConfig::default());
}

#[test]
fn messages_name_key_value_and_range() {
    assert_eq!(message("epochs", "0"), "`epochs=0` is not accepted; `epochs` takes a whole number from 1 to 1000000");
    assert_eq!(message("fraction", "2"), "`fraction=2` is not accepted; `fraction` takes a number above 0 and up to 1");
    assert_eq!(message("val", "x"), "`val=x` is not accepted; `val` takes True or False");
    assert_eq!(message("optimizer", "Adam"), "`optimizer=Adam` is not accepted; `optimizer` takes one of SGD, AdamW");
}

#[test]
fn unknown_keys_get_the_nearest_known_one() {
    assert_eq!(message("epoch", "3"), "unknown key `epoch`, did you mean `epochs`?");
    assert_eq!(message("batch_size", "3"), "unknown key `batch_size`, did you mean `batch`?");
    assert_eq!(message("lr", "3"), "unknown key `lr`, did you mean `lr0`?");
    assert_eq!(message("img_size", "3"), "unknown key `img_size`, did you mean `imgsz`?");
    assert_eq!(message("qqqq", "3"), "unknown key `qqqq`; --help lists the keys");
}

#[test]
fn keys_of_the_reference_pass_only_with_the_value_that_changes_nothing() {
    assert!(set("amp", "False").is_ok(), "training is in 32 bits anyway");
    assert!(set("copy_paste", "0.0").is_ok());
    assert!(set("freeze", "none").is_ok());
    let error = set("amp", "True").unwrap_err();
    assert_eq!(error.to_string(), "`amp=True` is not supported by this version; leave it out, or write `amp=False`");
    assert_eq!(error.reason(), Reason::NotSupported);
    assert_eq!(message("cfg", "x.yaml"), "`cfg=x.yaml` is not supported by this version");
}

#[test]
fn checks_come_in_the_order_of_the_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = TrainConfig { model: "yolov99".to_owned(), ..TrainConfig::default() };
    assert_eq!(config.check().unwrap_err().reason(), Reason::BadValue, "data must be given");
    config.data = dir.path().join("gone.yaml");
    config.name = "../out".to_owned();
    assert_eq!(config.check().unwrap_err().reason(), Reason::BadValue, "the name leads out of the project");
    config.name = "exp".to_owned();
    assert_eq!(config.check().unwrap_err().reason(), Reason::UnknownModel);
    config.model = dir.path().join("gone.safetensors").display().to_string();
    config.pretrained = Some("other.safetensors".into());
    assert_eq!(config.check().unwrap_err().reason(), Reason::Contradiction, "two files to begin from");
    config.pretrained = None;
    assert_eq!(config.check().unwrap_err().reason(), Reason::PathMissing, "the dataset");
    config.data = dir.path().to_owned();
    assert_eq!(config.check().unwrap_err().reason(), Reason::PathMissing, "the model");
    config.model = "yolov8n".to_owned();
    assert_eq!(config.check().unwrap(), None);
}

#[test]
fn imgsz_is_rounded_up_to_a_multiple_of_32() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = TrainConfig { imgsz: 100, data: dir.path().to_owned(), ..TrainConfig::default() };
    assert_eq!(config.check().unwrap(), Some(ImgszRounded { asked: 100, used: 128 }));
    assert_eq!(config.imgsz, 128);
}

#[test]
fn a_model_to_be_measured_needs_weights() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = ValConfig { model: "yolov8n".into(), data: dir.path().to_owned(), ..ValConfig::default() };
    assert_eq!(config.check().unwrap_err().reason(), Reason::UnknownModel);
}

#[test]
fn raw_identifiers_have_plain_names() {
    assert_eq!(plain_name("r#box"), "box");
    assert_eq!(plain_name("rect"), "rect");
}
